"""Evaluation on labels with an order."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from zoo.data.readers.labelled import Sample
from zoo.evaluation.base import Prediction, Result
from zoo.metrics.intervals import bootstrap_samples
from zoo.metrics.ordinal import ordinal_metrics
from zoo.overrides import override
from zoo.tasks.ordinal_regression.predict import Ordinal
from zoo.tasks.text_classification.evaluate import TextClassificationEvaluation


class OrdinalRegressionEvaluation(TextClassificationEvaluation):
    """Quadratic weighted kappa, mean absolute error in ranks, and accuracy."""

    name: ClassVar[str] = "ordinal-regression"
    predictor: ClassVar[type[Ordinal]] = Ordinal

    @override
    def row(self, sample: Sample, added: Mapping[str, Any]) -> Prediction:
        row = super().row(sample, added)
        distance = abs(self.labels.index(row["prediction"]) - self.labels.index(row["label"]))
        return {**row, "rank": added["rank"], "distance": distance}

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        """Return the distance in ranks, and among equal ones the probability."""
        return row["distance"] + row["probability"] if row["distance"] else None

    @override
    def result(self, samples: Iterable[Sample], predictions: Iterator[dict[str, Any]]) -> Result:
        actual = np.fromiter(map(self.actual, samples), np.int64)
        predicted = np.fromiter((self.numbers[added["label"]] for added in predictions), np.int64)
        intervals = bootstrap_samples(
            lambda rows: ordinal_metrics(predicted[rows], actual[rows]), len(actual), self.seed
        )
        metrics = {**ordinal_metrics(predicted, actual), "samples": len(actual)}
        return Result(metrics, {"intervals": intervals})
