"""Prompts that fit into the model: long texts are cut, and the rest of the prompt is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.errors import UsageError
from zoo.inference.processing.records import TextExample
from zoo.tasks.prompt.template import PAIR, TEXT, Prompt, Template
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

    template: Template
    before: str  # text before each prompt, the examples
    words: Sequence[str]  # words of the label; each has to fit
    tokenizer: "TextTokenizer"
    limit: int | None  # number of tokens of the model, or ``None``

    def prompts(self, texts: FittedTexts) -> list[Prompt]:
        """Return the prompts of a record, one for each word."""
        return [self.fill(texts.text, texts.pair, word) for word in self.words]

    def fill(self, text: str, pair: str | None, word: str) -> Prompt:
        """Return the prompt of texts with a word for the label."""
        return self.template.fill(text, pair, word, before=self.before)

    def fit(self, records: Sequence[TextExample]) -> list[FittedTexts]:
        """Return the texts of records, cut at their ends where the prompt is too long."""
        filled = [[self.fill(r.text, r.pair, word) for word in self.words] for r in records]
        encoded = iter(
            self.tokenizer.encode([p.text for row in filled for p in row], max_tokens=None)
        )
        longest = [max((next(encoded) for _ in row), key=lambda text: text.n) for row in filled]
        return [self._fit(record, text) for record, text in zip(records, longest, strict=True)]

    def _fit(self, record: TextExample, encoded: Encoded) -> FittedTexts:
        text = record.text
        pair = record.pair
        cut = 0
        while self.limit is not None and encoded.n > self.limit:
            excess = encoded.n - self.limit
            slot = PAIR if pair is not None and len(pair) > len(text) else TEXT
            value = pair if slot == PAIR and pair is not None else text
            prompt = self.fill(text, pair, max(self.words, key=len))
            (whole,) = self.tokenizer.encode([prompt.text], max_tokens=None)
            start, end = prompt.spans[slot]
            inside = [s for s, e in whole.offsets if s >= start and e <= end and e > s]
            if excess >= len(inside):  # of two texts, both are shortened
                excess = len(inside) // 2 if pair else 0
            if not excess:
                raise UsageError(
                    f"{record.location}: the prompt leaves no room for its text: without it, "
                    f"it has {whole.n - len(inside)} tokens, and the model takes {self.limit}",
                    "give fewer --shots, or a shorter template",
                )
            shortened = value[: inside[-excess] - start].rstrip()
            text, pair = (text, shortened) if slot == PAIR else (shortened, pair)
            cut += excess
            texts = [self.fill(text, pair, word).text for word in self.words]
            encoded = max(
                self.tokenizer.encode(texts, max_tokens=None), key=lambda encoded: encoded.n
            )
        return FittedTexts(encoded.ids, text, pair, cut)
