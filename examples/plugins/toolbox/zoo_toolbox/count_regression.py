"""Poisson regression of counts: training, results and evaluation."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.nn import functional as F

from zoo.data.readers.labelled import Sample
from zoo.data.readers.problems import RowError
from zoo.evaluation.base import Result
from zoo.finetuning.base import LABELS
from zoo.metrics.intervals import bootstrap_samples
from zoo.metrics.ranks import regression_metrics
from zoo.objectives.base import LossOutput, Outputs
from zoo.overrides import override
from zoo.tasks.text_classification.evaluate import RegressionEvaluation
from zoo.tasks.text_classification.predict import ClassifyTexts
from zoo.tasks.text_classification.train import Regression
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class CountRegression(Regression):
    """Negative log-likelihood of a Poisson distribution, whose log rate is the model's output.

    Nelder and Wedderburn 1972, J. R. Stat. Soc. A 135:370; without the term that is the same for
    all models.
    """

    name: ClassVar[str] = "count-regression"
    default_metric: ClassVar[str] = "spearman"

    @classmethod
    @override
    def check(cls, sample: Any, data: TableConfig) -> Any:
        checked = super().check(sample, data)
        if float(sample.label) < 0:
            raise RowError(f"{sample.location}: the count {sample.label} is negative")
        return checked

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        log_rates, counts = outputs.logits[self.name].squeeze(-1), batch[LABELS]
        return LossOutput(
            {self.name: F.poisson_nll_loss(log_rates, counts, reduction="sum")},
            predictions={"prediction": log_rates.detach().exp(), "label": counts},
        )


class Count(ClassifyTexts):
    """Results have the key ``count``, the expected count."""

    output_keys: ClassVar[tuple[str, ...]] = ("count",)

    @override
    def result(self, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        return {"count": math.exp(logits[0])}


class CountEvaluation(RegressionEvaluation):
    """Correlations of expected counts with counts, and the mean squared error."""

    name: ClassVar[str] = "count-regression"
    predictor: ClassVar[type[ClassifyTexts]] = Count

    @override
    def result(self, samples: Iterable[Sample], predictions: Iterator[dict[str, Any]]) -> Result:
        actual = np.fromiter(map(self.actual, samples), np.float64)
        predicted = np.fromiter((added["count"] for added in predictions), np.float64)
        intervals = bootstrap_samples(
            lambda rows: regression_metrics(predicted[rows], actual[rows]), len(actual), self.seed
        )
        metrics = {**regression_metrics(predicted, actual), "samples": len(actual)}
        return Result(metrics, {"intervals": intervals})
