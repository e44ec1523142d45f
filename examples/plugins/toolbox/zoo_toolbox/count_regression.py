"""Poisson regression of counts: training, results and evaluation."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch.nn import functional as F

from zoo.data.readers.labelled import Sample
from zoo.data.readers.problems import RowError
from zoo.evaluation.labelled_texts import TextEvaluation
from zoo.finetuning.labelled_texts import LabelledTexts, Number
from zoo.finetuning.task import LABELS, FineTuningTask, TaskContext, TaskLoss
from zoo.finetuning.text_inputs import TextInputs, TextModel, TextOptions
from zoo.inference.results import ResultContext
from zoo.inference.text_results import (
    NumberLabel,
    NumberMetrics,
    TextPrediction,
    TextResults,
)
from zoo.inference.text_scores import TextScores
from zoo.objectives.base import LossOutput, Outputs
from zoo.overrides import override
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray
    from torch import Tensor

    from zoo.checkpoint import Checkpoint


class Count(Number):
    """A number that is not negative."""

    @override
    def check(self, sample: Sample, table: TableConfig) -> None:
        super().check(sample, table)
        if float(sample.label) < 0:
            raise RowError(f"{sample.location}: the count {sample.label} is negative")


class PoissonLoss(TaskLoss):
    """Negative log-likelihood of a Poisson distribution, whose log rate is the model's output.

    Nelder and Wedderburn 1972, J. R. Stat. Soc. A 135:370; without the term that is the same for
    all models.
    """

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        log_rates = outputs.logits[context.name].squeeze(-1)
        counts = batch[LABELS]
        return LossOutput(
            {context.name: F.poisson_nll_loss(log_rates, counts, reduction="sum")},
            predictions={"prediction": log_rates.detach().exp(), "label": counts},
        )


class ExpectedCount(TextPrediction):
    """Results have the key ``count``, the expected count."""

    output_keys: ClassVar[tuple[str, ...]] = ("count",)

    @override
    def result(self, checkpoint: "Checkpoint", logits: "NDArray[Any]") -> dict[str, Any]:
        return {"count": math.exp(logits[0])}

    @override
    def dtype(self, context: ResultContext) -> "DTypeLike":
        return [("prediction", "f8")]

    @override
    def values(self, context: ResultContext, result: Mapping[str, Any]) -> tuple[Any, ...]:
        return (result["count"],)


COUNT_RESULTS = TextResults(NumberLabel(), ExpectedCount(), NumberMetrics(best="spearman"))


class CountScores(TextScores):
    """The expected count of each text."""

    results: ClassVar[TextResults | None] = COUNT_RESULTS
    output_keys: ClassVar[tuple[str, ...]] = ExpectedCount.output_keys


class CountEvaluation(TextEvaluation):
    """Correlations of expected counts with counts, and the mean squared error."""

    name: ClassVar[str] = "count-regression"
    suitable: ClassVar[str] = "regression"
    results: ClassVar[TextResults] = COUNT_RESULTS
    scores_type: ClassVar[type[TextScores]] = CountScores


COUNT_REGRESSION = FineTuningTask(
    name="count-regression",
    head="sequence-classification",
    data=LabelledTexts(Count()),
    inputs=TextInputs(),
    loss=PoissonLoss(),
    results=COUNT_RESULTS,
    model=TextModel(),
    options_type=TextOptions,
    problem="regression",
)
