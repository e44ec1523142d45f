"""Results of labelled words: accuracy, and scores of entities or labels."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.inference.results import EvaluationResults, Prediction, ResultContext
from zoo.metrics.classification import ClassCounts, accuracy, f1_macro
from zoo.metrics.entities import entities, entity_counts, entity_scores
from zoo.overrides import override
from zoo.tasks.token_classification.data import WordsSample, marks_spans

if TYPE_CHECKING:
    from numpy.typing import NDArray


class WordResults(EvaluationResults[WordsSample]):
    """Accuracy of words, and precision, recall and F1 of entities or labels."""

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        if marks_spans(context.labels):
            return ("accuracy", "precision", "recall", "f1")
        return ("accuracy", "f1_macro")

    @override
    def default_metric(self, context: ResultContext) -> str:
        """Return ``f1`` of entities, or accuracy where labels mark no spans."""
        return "f1" if marks_spans(context.labels) else "accuracy"

    @override
    def metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        labels = predictions["label"]
        predicted = predictions["prediction"]
        word_accuracy = accuracy(predicted, labels)
        if not marks_spans(context.labels):
            counts = ClassCounts.of(labels, predicted, len(context.labels))
            return {"accuracy": word_accuracy, "f1_macro": float(f1_macro(counts))}
        names = np.array(context.labels, object)
        cuts = np.flatnonzero(predictions["begins"])[1:]
        actual_sentences = np.split(names[labels], cuts)
        predicted_sentences = np.split(names[predicted], cuts)
        entities_of_types = list[Any]()
        for actual, guessed in zip(actual_sentences, predicted_sentences, strict=True):
            entities_of_types += entity_counts(actual.tolist(), guessed.tolist()).values()
        return {"accuracy": word_accuracy, **entity_scores(entities_of_types)}

    @override
    def class_names(self, context: ResultContext) -> Sequence[str]:
        return ()  # A sentence has many.

    @override
    def mistake(self, row: Prediction) -> float | None:
        """Return the number of entities or labels that are missed or wrong."""
        return row["missed"] + row["wrong"] or None

    @override
    def group_by_sample(
        self, predictions: "Mapping[str, NDArray[Any]]", count: int
    ) -> "Mapping[str, Sequence[Any]]":
        """Return the labels of each sentence; none if a sentence has no scored word."""
        if not predictions:
            return {}
        begins = np.flatnonzero(predictions["begins"])
        if len(begins) != count:
            return {}
        return {name: np.split(predictions[name], begins[1:]) for name in ("prediction", "label")}

    @override
    def row(
        self, context: ResultContext, sample: WordsSample, values: Mapping[str, Any]
    ) -> Prediction:
        label = [context.labels[number] for number in values["label"].tolist()]
        prediction = [context.labels[number] for number in values["prediction"].tolist()]
        counts = compare_words(label, prediction, has_spans=marks_spans(context.labels))
        return {
            "location": sample.location,
            "text": " ".join(sample.words),
            "label": label,
            "prediction": prediction,
            **counts,
        }


def compare_words(
    label: Sequence[str], prediction: Sequence[str], *, has_spans: bool
) -> dict[str, Any]:
    """Return whether a sentence is correct, and the numbers of missed and wrong entities.

    Args:
        label: labels of the words.
        prediction: predicted labels of the words.
        has_spans: whether labels mark spans, in IOB2; otherwise each word counts.
    """
    find: Any = entities if has_spans else enumerate
    actual = set(find(label))
    predicted = set(find(prediction))
    return {
        "correct": actual == predicted,
        "missed": len(actual - predicted),
        "wrong": len(predicted - actual),
    }
