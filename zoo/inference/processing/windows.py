"""Windows over long contexts of questions.

As in the question-answering pipeline of transformers 4 (``pipelines/question_answering.py``).
"""

from collections.abc import Iterator
from functools import cached_property

from zoo.errors import UsageError
from zoo.tokenizers import Encoded

WINDOW_TOKENS = 384  # default length of windows, as in Devlin et al. 2018 (arXiv:1810.04805)
DOC_STRIDE = 128  # default overlap of windows


class Window(Encoded):
    """A question with a part of its context; it has ``ids`` and ``type_ids``.

    Args:
        pair: question and context, without truncation.
        context: positions of the tokens of the context in the pair.
        part: those of them that are in the window.

    Attributes:
        pair: see above.
        part: see above.
        first: position of the first token of the part in the window.
    """

    def __init__(self, pair: Encoded, context: range, part: range) -> None:
        self.pair, self.part, self.first = pair, part, context.start
        self._last = context.stop
        self.ids = self._select(pair.ids)
        self.truncated = 0

    @cached_property
    def type_ids(self) -> list[int]:
        """Token type id of each token."""
        return self._select(self.pair.type_ids)

    def _select(self, values: list[int]) -> list[int]:
        part = values[self.part.start : self.part.stop]
        return [*values[: self.first], *part, *values[self._last :]]


def context_range(pair: Encoded) -> range:
    """Return the positions of the tokens of the second text of a pair."""
    texts = pair.sequence_ids
    start = texts.index(1) if 1 in texts else len(texts)
    return range(start, start + texts.count(1))


def split_context(pair: Encoded, max_tokens: int, stride: int) -> Iterator[Window]:
    """Yield windows over the context of a question; one, if all fits into one.

    Args:
        pair: question and context, without truncation.
        max_tokens: largest number of tokens of a window; more than those of the question, the
            special tokens and ``stride``.
        stride: number of tokens that consecutive windows share.
    """
    context = context_range(pair)
    width = max_tokens - (len(pair.ids) - len(context))
    stop, step = max(context.stop, context.start + 1), max(width - stride, 1)
    for start in range(context.start, stop, step):
        stop = min(start + width, context.stop)
        yield Window(pair, context, range(start, stop))
        if stop == context.stop:
            return


def window_stride(doc_stride: int | None, max_tokens: int) -> int:
    """Return the number of tokens that consecutive windows share.

    Args:
        doc_stride: that number; ``None`` for ``DOC_STRIDE``, or half of a shorter window.
        max_tokens: largest number of tokens of a window.

    Raises:
        UsageError: windows are too short for it.
    """
    stride = min(max_tokens // 2, DOC_STRIDE) if doc_stride is None else doc_stride
    if not 0 <= stride < max_tokens:
        raise UsageError(
            f"windows of {max_tokens} tokens cannot share {stride}", "lower --doc-stride"
        )
    return stride


def require_room(pair: Encoded, max_tokens: int, stride: int, location: str) -> None:
    """Check that a question leaves room for its context.

    Args:
        pair: question and context, without truncation.
        max_tokens: largest number of tokens of a window.
        stride: number of tokens that consecutive windows share.
        location: name of the question, for the message.

    Raises:
        UsageError: it does not.
    """
    tokens = len(pair.ids)
    fixed = tokens - len(context_range(pair))
    if tokens > max_tokens and fixed + stride >= max_tokens:
        raise UsageError(
            f"{location}: the question has {fixed} tokens with special ones, and a window of "
            f"{max_tokens}, of which the next one shares {stride}, has no room for the context",
            "shorten it, or lower --doc-stride",
        )
