"""Tokens of documents, and of completions after their prompts, for causal language models."""

from collections.abc import Sequence
from typing import NamedTuple

from zoo.errors import UsageError
from zoo.inference.likelihood import move_spaces, text_tokens
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
        # Tokens at the beginning and at the end of a document; empty without such a token.
        self.start_ids: list[int] = []
        self.end_ids: list[int] = []
        eos = tokenizer.role_id("eos")
        bos = tokenizer.role_id("bos")
        if eos is not None:
            self.start_ids = [eos if bos is None else bos]
            self.end_ids = [eos]

    def document(self, text: Encoded) -> list[CompletionTokens]:
        """Return the pieces of a document, which predict each of its tokens once.

        An end-of-text token precedes and follows it, as in ``zoo.objectives.causal``.
        """
        ids = [*self.start_ids, *text_tokens(text), *self.end_ids]
        pieces = []
        for start in range(0, len(ids) - 1, self.max_tokens):
            piece_ids = ids[start : start + self.max_tokens + 1]
            pieces.append(CompletionTokens(piece_ids, 1))
        return pieces

    def completion(self, context: Encoded, full_text: Encoded) -> CompletionTokens:
        """Return the tokens of a prompt and its completion.

        The end-of-text token follows, and is also predicted. It also precedes an empty prompt.
        What is too long loses the beginning of the prompt, and then the end of the completion.

        Args:
            context: the prompt.
            full_text: the prompt and its completion.
        """
        context_length = len(text_tokens(context))
        start_ids = _leading_tokens(full_text)
        if not start_ids and not context_length:
            start_ids = self.start_ids
        ids = [*start_ids, *text_tokens(full_text), *self.end_ids]
        first = max(1, len(start_ids) + context_length)
        if first >= len(ids):
            raise UsageError("there is no token to predict")
        excess = max(0, len(ids) - 1 - self.max_tokens)
        cut = min(excess, first - 1)
        return CompletionTokens(ids[cut:][: self.max_tokens + 1], first - cut, excess)

    def documents(self, texts: Sequence[str]) -> list[list[CompletionTokens]]:
        """Return the pieces of each document; see ``document``."""
        return [self.document(text) for text in self._encode(texts)]

    def completions(self, pairs: Sequence[tuple[str, str]]) -> list[CompletionTokens]:
        """Return the tokens of prompts and completions; see ``completion``.

        The full text is tokenized, and the tokens after as many as the prompt has are the
        completion; spaces at the end of a prompt belong to it, as in ``zoo.inference.likelihood``.
        """
        contexts = self._encode([move_spaces(*pair)[0] for pair in pairs])
        full_texts = self._encode(["".join(pair) for pair in pairs])
        completions = []
        for context, full_text in zip(contexts, full_texts, strict=True):
            completions.append(self.completion(context, full_text))
        return completions

    def _encode(self, texts: Sequence[str]) -> list[Encoded]:
        return self.tokenizer.encode(texts, max_tokens=None, offsets=False)


def _leading_tokens(text: Encoded) -> list[int]:
    """Return the special tokens before a text; none if it has only special tokens."""
    for position, is_special in enumerate(text.special):
        if not is_special:
            return text.ids[:position]
    return []
