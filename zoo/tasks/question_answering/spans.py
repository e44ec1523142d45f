"""Answers to a question, from the logits of the windows over its context."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from zoo.errors import UsageError
from zoo.families.span_beams import SpanBeams
from zoo.inference.processing.numbers import sigmoid, softmax
from zoo.inference.processing.windows import Window
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

MAX_ANSWER_LEN = 30  # tokens, as in run_squad.py of the released code of Devlin et al. 2018
LOWEST = 1e-300  # probability below which logarithms are cut off


class AnswerWindow(Protocol):
    """A part of a context in which answers are searched for; see ``Window``."""

    @property
    def part(self) -> range:
        """Positions of the tokens of the part in the pair."""

    @property
    def first(self) -> int:
        """Position of the first of them in the window."""

    def no_answer_position(self, no_answer_id: int | None) -> int | None:
        """Return the position of the token that stands for no answer, if the window has it."""

    def answer_mask(self, no_answer_id: int | None) -> "NDArray[np.bool_]":
        """Return which tokens may be in an answer or stand for none, (tokens,), bool."""


class Span(NamedTuple):
    """A span of tokens."""

    start: int  # Position of the first token.
    end: int  # Position of the last token.
    score: float  # Product of the probabilities of start and end.


class WindowSpans(NamedTuple):
    """The best spans of a window."""

    part: range  # Positions of the window's part of the context, in the pair.
    spans: list[Span]  # Spans by their positions in the pair, the best first.
    no_answer: float  # Probability that the token for no answer is both the first and the last.
    null_logit: float | None = None  # Logit of no answer, for a head that has one.


@dataclass(frozen=True)
class Candidates:
    """Answers to a question."""

    # Distinct spans of the context, the best first, with the keys ``answer``, ``score``, ``start``
    # and ``end`` (characters); empty if the context has no tokens.
    answers: list[dict[str, Any]]
    no_answer: float  # Score of no answer, the lowest of all windows.
    null_logit: float | None = None  # Lowest logit of no answer, for a head that has one.

    @property
    def null_score(self) -> float:
        """The logit of no answer, or by how much its log-score exceeds that of the best span."""
        best_score = self.answers[0]["score"] if self.answers else 0.0
        return self._null_score(best_score)

    def _null_score(self, span_score: float) -> float:
        """Return the logit of no answer, or the log of its score minus the log of a span's."""
        if self.null_logit is not None:
            return self.null_logit
        return math.log(max(self.no_answer, LOWEST)) - math.log(max(span_score, LOWEST))

    def ranked(
        self, *, handle_impossible_answer: bool = False, null_threshold: float = 0.0
    ) -> list[dict[str, Any]]:
        """Return the answers, the best first; an empty one means that the context has none.

        No answer comes before a span if the logarithm of its score is higher by more than the
        threshold, or if its logit exceeds the threshold.
        """
        if not handle_impossible_answer and self.answers:
            return self.answers
        better_answers = []
        for answer in self.answers:
            if self._null_score(answer["score"]) <= null_threshold:
                better_answers.append(answer)
        no_answer = {"answer": "", "score": self.no_answer, "start": 0, "end": 0}
        return [*better_answers, no_answer, *self.answers[len(better_answers) :]]

    def best_text(self, unanswerable: bool, null_threshold: float = 0.0) -> str:
        """Return the first of ``ranked``; empty for no answer."""
        ranked = self.ranked(handle_impossible_answer=unanswerable, null_threshold=null_threshold)
        text: str = ranked[0]["answer"]
        return text


@dataclass(frozen=True)
class SpanSearch:
    """Search for the answers to a question.

    It follows the question-answering pipeline of transformers 4
    (``pipelines/question_answering.py``), which searches for spans like DrQA (Chen et al. 2017,
    arXiv:1704.00051, section 3.2).
    """

    no_answer_id: int | None  # The token that stands for no answer; ``None`` for none.
    max_answer_len: int  # Largest number of tokens of an answer.
    top_k: int = 1  # Number of answers to return.

    def __post_init__(self) -> None:
        if self.top_k < 1 or self.max_answer_len < 1:
            raise UsageError("the number of answers and their length are at least 1")

    def window_spans(self, logits: "Floats", window: AnswerWindow) -> WindowSpans:
        """Return the best spans of a window, from logits of first and last token, (2, tokens)."""
        spans, no_answer = best_spans(
            logits,
            window,
            self.no_answer_id,
            count=self.count,
            max_tokens=self.max_answer_len,
        )
        return WindowSpans(window.part, spans, no_answer)

    def beam_spans(self, beams: SpanBeams, row: int, window: Window) -> WindowSpans:
        """Return the best of the spans that a head returned for a window.

        As in ``utils_qa.py`` of transformers' examples, spans that leave the context, go backwards
        or are too long are left out.
        """
        import numpy as np

        starts = beams.starts[row]
        ends = beams.ends[row]
        scores = beams.scores[row]
        stop = window.first + len(window.part)
        is_in_context = (window.first <= starts) & (starts <= ends) & (ends < stop) & (scores > 0)
        is_short = ends - starts < self.max_answer_len
        candidates = np.flatnonzero(is_in_context & is_short)
        best = candidates[np.argsort(-scores[candidates], kind="stable")][: self.count]
        shift = window.part.start - window.first
        spans = []
        for number in best:
            start = int(starts[number]) + shift
            end = int(ends[number]) + shift
            spans.append(Span(start, end, float(scores[number])))
        logit = beams.no_answer_logits[row]
        return WindowSpans(window.part, spans, float(sigmoid(logit)), float(logit))

    @property
    def count(self) -> int:
        """Number of spans to keep of a window; several may become the same words."""
        return 2 * self.top_k + 10

    def candidates(self, pair: Encoded, context: str, windows: Sequence[WindowSpans]) -> Candidates:
        """Return the answers over all windows of a context; ``pair`` is not truncated.

        Spans are extended to whole words; scores of answers that are equal except for case are
        added, so that sums over windows may exceed 1.
        """
        answers: dict[str, dict[str, Any]] = {}
        for window in windows:
            for span in window.spans:
                answer = _extend_to_words(pair, context, window.part, span)
                key = answer["answer"].lower()
                if key in answers:
                    answers[key]["score"] += span.score
                else:
                    answers[key] = answer
        ranked = sorted(answers.values(), key=lambda answer: -answer["score"])
        logits = [window.null_logit for window in windows if window.null_logit is not None]
        no_answer = min(window.no_answer for window in windows)
        return Candidates(ranked, no_answer, min(logits, default=None))


def _extend_to_words(pair: Encoded, context: str, part: range, span: Span) -> dict[str, Any]:
    """Return the words of a span, as far as they are in a window."""
    words = pair.word_ids
    offsets = pair.offsets
    first_token = span.start
    last_token = span.end
    if words[first_token] is not None and words[last_token] is not None:
        while first_token > part.start and words[first_token - 1] == words[span.start]:
            first_token -= 1
        while last_token + 1 < part.stop and words[last_token + 1] == words[span.end]:
            last_token += 1
    start = offsets[first_token][0]
    end = offsets[last_token][1]
    return {"answer": context[start:end], "score": span.score, "start": start, "end": end}


def best_spans(
    logits: "Floats",
    window: AnswerWindow,
    no_answer_id: int | None,
    *,
    count: int,
    max_tokens: int,
) -> tuple[list[Span], float]:
    """Return the most likely spans of a window, the best first, and the score of no answer.

    Probabilities are over the tokens of the context and the token that stands for no answer. The
    score is the probability that both first and last token stand for no answer.

    Args:
        logits: logits of the first and the last token, (2, tokens).
        window: the window; spans have positions in its pair.
        no_answer_id: the token that stands for no answer.
        count: number of spans.
        max_tokens: largest number of tokens of a span.
    """
    import numpy as np

    is_allowed = window.answer_mask(no_answer_id)
    if not is_allowed.any():
        return [], 0.0
    probs = softmax(np.where(is_allowed, logits, -np.inf))
    no_answer = 0.0
    position = window.no_answer_position(no_answer_id)
    if position is not None:
        no_answer = float(probs[0, position] * probs[1, position])
    length = len(window.part)
    if not length:
        return [], no_answer
    starts, ends = probs[:, window.first : window.first + length]
    width = min(max_tokens, length)
    padded_ends = np.concatenate([ends, np.full(width - 1, -1.0)])
    # ``scores[s, d]`` is the score of the span from s to s + d.
    scores = starts[:, None] * np.lib.stride_tricks.sliding_window_view(padded_ends, width)
    scores[np.add.outer(np.arange(length), np.arange(width)) >= length] = -1.0
    flat_scores = scores.ravel()
    best = np.argpartition(-flat_scores, min(count, flat_scores.size) - 1)[:count]
    ranked = best[np.argsort(-flat_scores[best], kind="stable")]
    spans = []
    for index in ranked.tolist():
        score = float(flat_scores[index])
        if score >= 0:
            start = window.part.start + index // width
            spans.append(Span(start, start + index % width, score))
    return spans, no_answer
