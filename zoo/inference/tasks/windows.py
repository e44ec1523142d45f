"""Windows over long contexts, and the best answers in a window.

As in the question-answering pipeline of transformers 4 (``pipelines/question_answering.py``), whose
search for spans is that of DrQA (Chen et al. 2017, arXiv:1704.00051, section 3.2).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.inference.tasks.numbers import softmax
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


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


class Span(NamedTuple):
    """A span of tokens.

    Attributes:
        start: position of the first token.
        end: position of the last token.
        score: product of the probabilities of start and end.
    """

    start: int
    end: int
    score: float


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


def best_spans(
    logits: "Floats", window: Window, no_answer_id: int | None, *, count: int, max_tokens: int
) -> tuple[list[Span], float]:
    """Return the most likely spans of a window, the best first, and the score of no answer.

    Probabilities are over the tokens of the context and the token that stands for no answer.

    Args:
        logits: of the first and of the last token of the answer, (2, tokens).
        window: the window.
        no_answer_id: the token that stands for no answer if it is the first; ``None`` for none.
        count: number of spans to return, if there are as many.
        max_tokens: largest number of tokens of a span.

    Returns:
        spans by their positions in the pair, and the probability that both the first and the last
        token are that of no answer.
    """
    import numpy as np

    allowed = np.array(window.ids) == (-1 if no_answer_id is None else no_answer_id)
    length = len(window.part)
    context = slice(window.first, window.first + length)
    allowed[context] = True
    if not allowed.any():
        return [], 0.0
    probs = softmax(np.where(allowed, logits, -np.inf))
    no_answer = float(probs[0, 0] * probs[1, 0])
    probs[:, 0] = 0.0
    if not length:
        return [], no_answer
    starts, ends = probs[:, context]
    width = min(max_tokens, length)
    padded = np.concatenate([ends, np.full(width - 1, -1.0)])
    # scores[s, d]: of the span from s to s + d
    scores = starts[:, None] * np.lib.stride_tricks.sliding_window_view(padded, width)
    scores[np.add.outer(np.arange(length), np.arange(width)) >= length] = -1.0
    flat = scores.ravel()
    best = np.argpartition(-flat, min(count, flat.size) - 1)[:count]
    ranked = best[np.argsort(-flat[best], kind="stable")].tolist()
    spans = [(window.part.start + k // width, k % width, float(flat[k])) for k in ranked]
    return [
        Span(start, start + more, score) for start, more, score in spans if score >= 0
    ], no_answer
