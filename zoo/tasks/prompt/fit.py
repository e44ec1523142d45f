"""Prompts that fit into the model: long texts are cut, and the other parts of a prompt are not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.errors import UsageError
from zoo.inference.processing.records import TextExample
from zoo.tasks.prompt.template import PAIR, TEXT, Prompt, PromptTemplate
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    from zoo.tokenizers import TextTokenizer


class FittedTexts(Encoded):
    """The texts of a record as they fit into its prompt."""

    def __init__(self, ids: list[int], text: str, pair: str | None, cut: int) -> None:
        self.ids = ids
        self.text = text
        self.pair = pair
        self.truncated = cut


@dataclass(frozen=True)
class PromptFitter:
    """Cuts texts so that their prompts fit."""

    template: PromptTemplate
    before: str  # Text before each prompt, the examples.
    words: Sequence[str]  # Words of the label; each has to fit.
    tokenizer: "TextTokenizer"
    limit: int | None  # Number of tokens of the model, or ``None``.

    def prompts(self, texts: FittedTexts) -> list[Prompt]:
        """Return the prompts of a record, one for each word."""
        return [self.fill(texts.text, texts.pair, word) for word in self.words]

    def fill(self, text: str, pair: str | None, word: str) -> Prompt:
        """Return the prompt of texts with a word for the label."""
        return self.template.fill(text, pair, word, before=self.before)

    def fit(self, records: Sequence[TextExample]) -> list[FittedTexts]:
        """Return the texts of records, cut at their ends where the prompt is too long."""
        prompts = []
        for record in records:
            for word in self.words:
                prompts.append(self.fill(record.text, record.pair, word).text)
        encoded = self.tokenizer.encode(prompts, max_tokens=None)
        texts = []
        for number, record in enumerate(records):
            start = number * len(self.words)
            record_prompts = encoded[start : start + len(self.words)]
            longest = max(record_prompts, key=lambda prompt: prompt.n)
            texts.append(self._fit(record, longest))
        return texts

    def _fit(self, record: TextExample, encoded: Encoded) -> FittedTexts:
        """Return the texts of a record, whose longest prompt is given, cut until it fits."""
        text = record.text
        pair = record.pair
        cut = 0
        while self.limit is not None and encoded.n > self.limit:
            excess = encoded.n - self.limit
            slot = PAIR if pair is not None and len(pair) > len(text) else TEXT
            value = pair if slot == PAIR and pair is not None else text
            prompt = self.fill(text, pair, max(self.words, key=len))
            (full_prompt,) = self.tokenizer.encode([prompt.text], max_tokens=None)
            start, end = prompt.spans[slot]
            # Where the tokens of the text begin.
            token_starts = []
            for token_start, token_end in full_prompt.offsets:
                if start <= token_start < token_end <= end:
                    token_starts.append(token_start)
            if excess >= len(token_starts):
                # If there are two texts, both are shortened.
                excess = len(token_starts) // 2 if pair else 0
            if not excess:
                tokens = full_prompt.n - len(token_starts)
                raise UsageError(
                    f"{record.location}: the prompt leaves no room for its text: without it, "
                    f"it has {tokens} tokens, and the model takes {self.limit}",
                    "give fewer --shots, or a shorter template",
                )
            shortened = value[: token_starts[-excess] - start].rstrip()
            if slot == PAIR:
                pair = shortened
            else:
                text = shortened
            cut += excess
            texts = [self.fill(text, pair, word).text for word in self.words]
            encoded = max(
                self.tokenizer.encode(texts, max_tokens=None), key=lambda encoded: encoded.n
            )
        return FittedTexts(encoded.ids, text, pair, cut)
