"""Evaluation on labels with an order."""

from typing import ClassVar

from zoo.evaluation.labelled_texts import TextEvaluation
from zoo.inference.text_results import TextResults
from zoo.inference.text_scores import TextScores
from zoo.tasks.ordinal_regression.predict import Ordinal
from zoo.tasks.ordinal_regression.results import ORDINAL_RESULTS


class OrdinalRegressionEvaluation(TextEvaluation):
    """Quadratic weighted kappa, mean absolute error in ranks, and accuracy."""

    name: ClassVar[str] = "ordinal-regression"
    suitable: ClassVar[str] = "text-classification"
    results: ClassVar[TextResults] = ORDINAL_RESULTS
    scores_type: ClassVar[type[TextScores]] = Ordinal
