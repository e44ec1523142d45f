"""Results of multiple choice: accuracy, and the row of a question."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.inference.results import EvaluationResults, Prediction, ResultContext
from zoo.metrics.classification import accuracy
from zoo.overrides import override
from zoo.tasks.multiple_choice.data import ChoiceSample

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ChoiceResults(EvaluationResults[ChoiceSample]):
    """The fraction of questions with the correct choice."""

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        return ("accuracy",)

    @override
    def metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        return {"accuracy": accuracy(predictions["prediction"], predictions["label"])}

    @override
    def row(
        self, context: ResultContext, sample: ChoiceSample, values: Mapping[str, Any]
    ) -> Prediction:
        prediction = int(values["prediction"])
        row: dict[str, Any] = {
            "location": sample.location,
            "text": sample.context,
            "question": sample.question,
        }
        if values.get("with_choices"):
            row["choices"] = list(sample.choices)
        return {
            **row,
            "label": sample.choices[sample.label],
            "prediction": sample.choices[prediction],
            "probability": float(values["probability"]),
            "correct": prediction == sample.label,
        }
