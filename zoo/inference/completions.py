"""Tokens of documents, and of completions after their prompts, for causal language models."""

from collections.abc import Sequence
from typing import NamedTuple

from zoo.errors import UsageError
from zoo.inference.likelihood import move_spaces
from zoo.tokenizers import Encoded, TextTokenizer


class CompletionTokens(NamedTuple):
    """Tokens of a text whose last ones are predicted."""

    ids: list[int]  # all tokens; all but the last are inputs
    first: int  # index of the first token that is predicted, at least 1
    truncated: int = 0  # number of tokens that were cut


class CompletionTokenizer:
    """Tokenizes documents, and prompts with completions."""

    def __init__(self, tokenizer: TextTokenizer, max_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        eos = tokenizer.role_id("eos")
        bos = tokenizer.role_id("bos")
        self.after = [] if eos is None else [eos]
        self.before = self.after[:1] if bos is None or eos is None else [bos]

    def document(self, text: Encoded) -> list[CompletionTokens]:
        """Return the pieces of a document, which predict each of its tokens once."""
        # An end-of-text token precedes and follows it, as in ``zoo.objectives.causal``.
        ids = [*self.before, *_text_tokens(text), *self.after]
        return [
            CompletionTokens(ids[start : start + self.max_tokens + 1], 1)
            for start in range(0, len(ids) - 1, self.max_tokens)
        ]

    def completion(self, context: Encoded, whole: Encoded) -> CompletionTokens:
        """Return the tokens of a prompt and its completion."""
        # The end-of-text token follows, and is also predicted. It also precedes an empty prompt.
        # What is too long loses the beginning of the prompt, and then the end of the completion.
        leading = whole.ids[: next((k for k, flag in enumerate(whole.special) if not flag), 0)]
        known = len(_text_tokens(context))
        start = leading or ([] if known else self.before)
        ids = [*start, *_text_tokens(whole), *self.after]
        first = max(1, len(start) + known)
        if first >= len(ids):
            raise UsageError("there is no token to predict")
        excess = max(0, len(ids) - 1 - self.max_tokens)
        cut = min(excess, first - 1)
        return CompletionTokens(ids[cut:][: self.max_tokens + 1], first - cut, excess)

    def documents(self, texts: Sequence[str]) -> list[list[CompletionTokens]]:
        """Return the pieces of each document; see ``document``."""
        return [self.document(text) for text in self._encode(texts)]

    def completions(self, pairs: Sequence[tuple[str, str]]) -> list[CompletionTokens]:
        """Return the tokens of prompts and completions; see ``completion``."""
        # The whole text is tokenized, and the tokens after as many as the prompt has are the
        # completion; spaces at the end of a prompt belong to it, as in
        # ``zoo.inference.likelihood``.
        contexts = self._encode([move_spaces(*pair)[0] for pair in pairs])
        wholes = self._encode(["".join(pair) for pair in pairs])
        return [self.completion(*texts) for texts in zip(contexts, wholes, strict=True)]

    def _encode(self, texts: Sequence[str]) -> list[Encoded]:
        return self.tokenizer.encode(texts, max_tokens=None, offsets=False)


def _text_tokens(text: Encoded) -> list[int]:
    return [token for token, special in zip(text.ids, text.special, strict=True) if not special]
