"""Evaluation of extractive question answering: exact match and F1."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Columns
from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.inference.processing.records import TextExample
from zoo.inference.task import EncodedExample
from zoo.inference.task_checks import require_head
from zoo.metrics.intervals import bootstrap_samples
from zoo.metrics.squad import ScoredAnswers, answer_scores, best_threshold
from zoo.overrides import override
from zoo.tasks.question_answering.data import (
    COLUMNS,
    QuestionSample,
    iter_questions,
    review_question,
)
from zoo.tasks.question_answering.predict import Answer
from zoo.tasks.question_answering.spans import MAX_ANSWER_LEN, Candidates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint

SCORES = [  # of a prediction, and of the best span, which is never no answer
    ("exact_match", "f8"),
    ("f1", "f8"),
    ("span_exact_match", "f8"),
    ("span_f1", "f8"),
    ("null_score", "f8"),
    ("answered", "?"),
]


class AnswerCandidates(Answer):
    """The task answer, with all candidates as the result."""

    @override
    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"candidates": self.candidates(item, rows)}


def question_row(
    sample: QuestionSample, candidates: Candidates, unanswerable: bool, null_threshold: float
) -> Prediction:
    """Return the row of a question in ``--predictions`` and in reports.

    ``unanswerable`` says that some questions of the data have no answer.
    """
    answers = [answer.text for answer in sample.answers]
    best = candidates.ranked(handle_impossible_answer=unanswerable, null_threshold=null_threshold)[
        0
    ]
    exact, f1 = answer_scores(best["answer"], answers, unanswerable=unanswerable)
    return {
        "location": sample.location,
        "text": sample.question,
        "context": sample.context,
        "label": answers,
        "prediction": best["answer"],
        "probability": best["score"],
        "correct": exact == 1,
        "f1": f1,
    }


class QuestionAnsweringEvaluation(Evaluation):
    """Exact match and F1 of the answers of ``zoo run answer``, from 0 to 1.

    If some questions have no answer, no answer competes with the spans, there are metrics for
    both kinds of questions, and the details have the thresholds of no answer that are best for
    this data; see ``zoo.metrics.squad``.
    """

    name: ClassVar[str] = "question-answering"

    def __init__(
        self,
        *args: Any,
        text: str = COLUMNS.text,
        pair: str | None = COLUMNS.pair,
        label: str = COLUMNS.label,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        max_answer_len: int = MAX_ANSWER_LEN,
        null_threshold: float = 0.0,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns = Columns(text, label, pair)
        self.seed = seed
        self.null_threshold = null_threshold
        self.task = AnswerCandidates(
            self.checkpoint,
            self.session,
            max_tokens=max_seq_len,
            doc_stride=doc_stride,
            max_answer_len=max_answer_len,
        )

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        require_head(checkpoint, Answer.name)

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        samples = self.samples(
            lambda problems: iter_questions(files, self.columns, problems), review_question
        )
        # which also finds what cannot be read before anything is computed
        answerable = np.fromiter((bool(sample.answers) for sample in samples), np.bool_)
        table = np.fromiter(self._scores(samples, answerable), SCORES)
        scored = ScoredAnswers(table["exact_match"], table["f1"], answerable)
        intervals = bootstrap_samples(scored.metrics, len(answerable), self.seed)
        details: dict[str, Any] = {"intervals": intervals}
        if not answerable.all():
            details["best"] = highest = dict[str, float]()  # over all thresholds of no answer
            for name in ("exact_match", "f1"):
                scores = table[f"span_{name}"]
                null_scores = table["null_score"]
                best, threshold = best_threshold(scores, null_scores, answerable, table["answered"])
                highest |= {name: best, f"{name}_threshold": threshold}
        return Result({**scored.metrics(), "questions": len(answerable)}, details)

    def _scores(
        self, samples: Iterable[QuestionSample], answerable: "NDArray[np.bool_]"
    ) -> Iterator[tuple[float, ...]]:
        """Yield a row of ``SCORES`` for each question, which is then dropped."""
        unanswerable = not answerable.all()
        records = (TextExample(s.question, s.context, location=s.location) for s in samples)
        added = self.stream(self.task, records, len(answerable))
        results = (values["candidates"] for values in added)

        def row(sample: QuestionSample, candidates: Candidates) -> Prediction:
            return question_row(sample, candidates, unanswerable, self.null_threshold)

        for sample, candidates in zip(samples, self.observed(samples, results, row), strict=True):
            answers = [answer.text for answer in sample.answers]
            text = candidates.best_text(unanswerable, self.null_threshold)
            span = candidates.best_text(False)
            yield (
                *answer_scores(text, answers, unanswerable=unanswerable),
                *answer_scores(span, answers, unanswerable=unanswerable),
                candidates.null_score,
                bool(span),
            )
