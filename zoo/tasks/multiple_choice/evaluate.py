"""Evaluation of multiple choice: accuracy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.inference.processing.records import TextExample
from zoo.inference.results import EvaluatedModel
from zoo.inference.task_checks import require_head
from zoo.metrics.intervals import bootstrap_samples
from zoo.overrides import override
from zoo.tasks.multiple_choice.data import (
    CHOICES,
    ChoiceColumns,
    ChoiceSample,
    iter_choices,
    review_choice,
)
from zoo.tasks.multiple_choice.predict import Choose
from zoo.tasks.multiple_choice.results import ChoiceResults

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint

RESULTS = ChoiceResults()


class MultipleChoiceEvaluation(Evaluation):
    """Fraction of questions with the correct choice."""

    name: ClassVar[str] = "multiple-choice"

    def __init__(
        self,
        *args: Any,
        text: str = ChoiceColumns.text,
        pair: str | None = None,
        label: str = ChoiceColumns.label,
        choices: tuple[str, ...] = (),
        max_seq_len: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns = ChoiceColumns(text, pair, label, choices)
        self.seed = seed
        self.model = EvaluatedModel(self.checkpoint.config)
        self.task = Choose(self.checkpoint, self.session, max_tokens=max_seq_len)

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        require_head(checkpoint, Choose.name)

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        samples = self.samples(
            lambda problems: iter_choices(files, self.columns, problems), review_choice
        )
        labels = np.fromiter((sample.label for sample in samples), np.int64)
        records = (
            TextExample(s.context, s.question, {CHOICES: s.choices}, s.location) for s in samples
        )
        model_results = self.stream(self.task, records, len(labels))
        observed = self.observed(samples, model_results, self._row)
        choices = np.fromiter((added["label"] for added in observed), np.int64)

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            predictions = {"label": labels[rows], "prediction": choices[rows]}
            return RESULTS.metrics(self.model, predictions)

        return Result(
            {**metrics(np.arange(len(labels))), "questions": len(labels)},
            {"intervals": bootstrap_samples(metrics, len(labels), self.seed)},
        )

    def _row(self, sample: ChoiceSample, added: Mapping[str, Any]) -> Prediction:
        values = {
            "prediction": added["label"],
            "probability": added["score"],
            "with_choices": True,
        }
        return RESULTS.row(self.model, sample, values)
