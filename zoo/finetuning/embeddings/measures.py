"""Measures of embeddings: the metrics of an evaluation, and its rows in reports."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from zoo.data.readers.labelled import label_number
from zoo.finetuning.embeddings.data import TextGroup
from zoo.inference.processing.similarity import compare_pairs
from zoo.inference.results import Prediction
from zoo.metrics.classification import accuracy
from zoo.metrics.ranks import correlations, rank_differences
from zoo.metrics.retrieval import NAMES, retrieval_scores, triplet_accuracy
from zoo.overrides import override

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.finetuning.embeddings.representation import EmbeddedBatch, Representation
    from zoo.finetuning.task import TaskContext

    Arrays = Mapping[str, NDArray[Any]]
    import numpy as np


ANCHOR = "anchor"
TEXT = "text"
NEGATIVE = "negative"
SIMILARITY = "similarity"
LABEL = "label"
TEXT_NUMBERS = "texts"  # Numbers of the texts of a row, equal texts alike, (rows, columns).


class Measure(ABC):
    """How embeddings are evaluated.

    Attributes:
        metric_names: names of the metrics; the first selects the best checkpoint.
    """

    metric_names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def predictions(
        self, batch: "EmbeddedBatch", tensors: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        """Return what the metrics need of a batch, without gradients, (rows, ...) each."""

    @abstractmethod
    def metrics(
        self, context: "TaskContext", representation: "Representation", predictions: "Arrays"
    ) -> dict[str, float]:
        """Return the metrics over all rows, whatever the batches were."""

    @abstractmethod
    def rows(
        self,
        context: "TaskContext",
        representation: "Representation",
        predictions: "Arrays",
        samples: Sequence[TextGroup],
    ) -> Iterator[Prediction]:
        """Yield the rows of reports; ``predictions`` has a row of each sample."""


class ScoreMeasure(Measure):
    """Correlations of the similarity of pairs with their scores."""

    metric_names: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    @override
    def predictions(
        self, batch: "EmbeddedBatch", tensors: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        similarity = batch.representation.metric_similarity(batch.context, batch.vectors.detach())
        return {SIMILARITY: similarity, LABEL: batch.labels}

    @override
    def metrics(
        self, context: "TaskContext", representation: "Representation", predictions: "Arrays"
    ) -> dict[str, float]:
        return correlations(predictions[SIMILARITY].ravel(), predictions[LABEL].ravel())

    @override
    def rows(
        self,
        context: "TaskContext",
        representation: "Representation",
        predictions: "Arrays",
        samples: Sequence[TextGroup],
    ) -> Iterator[Prediction]:
        similarity = predictions[SIMILARITY]
        differences = rank_differences(similarity, predictions[LABEL])
        for sample, value, difference in zip(samples, similarity, differences, strict=True):
            yield scored_row(sample, value, difference)


class MarginMeasure(Measure):
    """Correlations of margins between a text and negatives with a teacher's."""

    metric_names: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    @override
    def predictions(
        self, batch: "EmbeddedBatch", tensors: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        margins = batch.representation.metric_margins(batch.context, batch.vectors.detach())
        return {SIMILARITY: margins, LABEL: batch.labels}

    @override
    def metrics(
        self, context: "TaskContext", representation: "Representation", predictions: "Arrays"
    ) -> dict[str, float]:
        return correlations(predictions[SIMILARITY].ravel(), predictions[LABEL].ravel())

    @override
    def rows(
        self,
        context: "TaskContext",
        representation: "Representation",
        predictions: "Arrays",
        samples: Sequence[TextGroup],
    ) -> Iterator[Prediction]:
        """Yield a row of each negative."""
        margins = predictions[SIMILARITY]
        labels = predictions[LABEL]
        differences = rank_differences(margins.ravel(), labels.ravel()).reshape(margins.shape)
        for number, sample in enumerate(samples):
            for column, negative in enumerate(sample.texts[2:]):
                yield margin_row(
                    sample,
                    negative,
                    float(margins[number, column]),
                    float(labels[number, column]),
                    float(differences[number, column]),
                )


class ClassMeasure(Measure):
    """Accuracy of the classes of pairs."""

    metric_names: ClassVar[tuple[str, ...]] = ("accuracy",)

    @override
    def predictions(
        self, batch: "EmbeddedBatch", tensors: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        assert batch.class_logits is not None, "labels are classes"
        probability, best = batch.class_logits.detach().softmax(-1).max(-1)
        return {"prediction": best, LABEL: batch.labels, "probability": probability}

    @override
    def metrics(
        self, context: "TaskContext", representation: "Representation", predictions: "Arrays"
    ) -> dict[str, float]:
        return {"accuracy": accuracy(predictions["prediction"], predictions[LABEL])}

    @override
    def rows(
        self,
        context: "TaskContext",
        representation: "Representation",
        predictions: "Arrays",
        samples: Sequence[TextGroup],
    ) -> Iterator[Prediction]:
        for number, sample in enumerate(samples):
            yield class_row(
                sample,
                context.labels[predictions["prediction"][number]],
                context.labels[predictions[LABEL][number]],
                float(predictions["probability"][number]),
            )


class TripletMeasure(Measure):
    """The fraction of anchors that are nearer to their text than to the negative; ties are 1/2."""

    metric_names: ClassVar[tuple[str, ...]] = ("accuracy",)

    @override
    def predictions(
        self, batch: "EmbeddedBatch", tensors: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        vectors = batch.representation.metric_vectors(batch.context, batch.vectors.detach())
        return {ANCHOR: vectors[0], TEXT: vectors[1], NEGATIVE: vectors[2]}

    def _compare(self, context: "TaskContext", similarity: Any, predictions: "Arrays") -> Any:
        return compare_pairs(
            predictions[ANCHOR],
            predictions[TEXT],
            predictions[NEGATIVE],
            similarity,
            context.compute_dtype,
        )

    @override
    def metrics(
        self, context: "TaskContext", representation: "Representation", predictions: "Arrays"
    ) -> dict[str, float]:
        similarity = representation.pooling(context).similarity_fn_name
        compared = self._compare(context, similarity, predictions)
        return {"accuracy": triplet_accuracy(*compared)}

    @override
    def rows(
        self,
        context: "TaskContext",
        representation: "Representation",
        predictions: "Arrays",
        samples: Sequence[TextGroup],
    ) -> Iterator[Prediction]:
        similarity = representation.pooling(context).similarity_fn_name
        near, far, _ = self._compare(context, similarity, predictions)
        for sample, pair in zip(samples, np.stack([near, far], 1), strict=True):
            yield retrieval_row(sample.texts[0], [0], sample.texts[1:], pair)


class RetrievalMeasure(Measure):
    """Mean reciprocal rank and accuracy of each anchor's text among all texts of the evaluation."""

    metric_names: ClassVar[tuple[str, ...]] = ("mrr", "accuracy")

    @override
    def predictions(
        self, batch: "EmbeddedBatch", tensors: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        vectors = batch.representation.retrieval_vectors(batch.context, batch.vectors.detach())
        if not vectors:
            return {}
        return {**vectors, TEXT_NUMBERS: tensors[TEXT_NUMBERS]}

    @override
    def metrics(
        self, context: "TaskContext", representation: "Representation", predictions: "Arrays"
    ) -> dict[str, float]:
        queries = Queries.from_numbers(predictions[TEXT_NUMBERS])
        compared = self._compare(context, representation, queries, predictions)
        scores = retrieval_scores(compared, queries.relevant)
        means = dict(zip(NAMES, scores.mean(0).tolist(), strict=True))
        return {name: means[name] for name in self.metric_names}

    def _compare(
        self,
        context: "TaskContext",
        representation: "Representation",
        queries: "Queries",
        predictions: "Arrays",
    ) -> "Iterator[tuple[NDArray[Any], float]]":
        """Yield the similarities of each distinct anchor to the distinct texts."""
        anchors, texts = representation.retrieved(predictions)
        return representation.similarity_rows(
            context, anchors[queries.anchors], texts[queries.texts]
        )

    @override
    def rows(
        self,
        context: "TaskContext",
        representation: "Representation",
        predictions: "Arrays",
        samples: Sequence[TextGroup],
    ) -> Iterator[Prediction]:
        queries = Queries.from_numbers(predictions[TEXT_NUMBERS])
        names = [samples[row].texts[1] for row in queries.texts]
        compared = self._compare(context, representation, queries, predictions)
        for row, relevant, (similarity, _) in zip(
            queries.anchors, queries.relevant, compared, strict=True
        ):
            yield retrieval_row(samples[row].texts[0], relevant, names, similarity)


class Queries(NamedTuple):
    """Distinct anchors and texts of rows; rows of one anchor are a query."""

    anchors: "NDArray[np.int64]"  # A row of each anchor, (anchors,).
    texts: "NDArray[np.int64]"  # A row of each text, (texts,).
    relevant: list[list[int]]  # For each anchor, the indices of its texts.

    @classmethod
    def from_numbers(cls, numbers: "NDArray[Any]") -> "Queries":
        """Return the queries from the number of each text, equal ones alike, (rows, columns)."""
        _, anchors, queries = np.unique(numbers[:, 0], return_index=True, return_inverse=True)
        _, texts, candidates = np.unique(numbers[:, 1], return_index=True, return_inverse=True)
        relevant: list[set[int]] = [set() for _ in anchors]
        for query, candidate in zip(queries.tolist(), candidates.tolist(), strict=True):
            relevant[query].add(candidate)
        return cls(anchors, texts, [*map(list, relevant)])


SCORES = ScoreMeasure()
MARGINS = MarginMeasure()
CLASSES = ClassMeasure()
TRIPLETS = TripletMeasure()
RETRIEVAL = RetrievalMeasure()


RANK_DIFFERENCE = "rank_difference"


def embedding_mistake(row: Prediction) -> float | None:
    """Return by how much the ranks of a pair differ, or the rank of an anchor's own text."""
    if RANK_DIFFERENCE in row:
        return float(abs(row[RANK_DIFFERENCE]))
    if "rank" in row:
        return None if row["rank"] == 1 else float(row["rank"])
    if row.get("correct", True):
        return None
    return float(row.get("probability") or 0.0)


def scored_row(sample: TextGroup, similarity: float, difference: float) -> Prediction:
    """Return the row of two texts with a score; see ``zoo.metrics.ranks.rank_differences``."""
    return {
        "location": sample.location,
        "text": sample.texts[0],
        "pair": sample.texts[1],
        "label": label_number(sample.label, sample.location),
        "prediction": float(similarity),
        RANK_DIFFERENCE: float(difference),
    }


def margin_row(
    sample: TextGroup, negative: str, margin: float, label: float, difference: float
) -> Prediction:
    """Return the row of an anchor, its text and a negative with the margin of a teacher."""
    return {
        "location": sample.location,
        "text": sample.texts[0],
        "pair": sample.texts[1],
        "negative": negative,
        "label": label,
        "prediction": margin,
        RANK_DIFFERENCE: difference,
    }


def class_row(sample: TextGroup, prediction: str, label: str, probability: float) -> Prediction:
    """Return the row of two texts with a class."""
    return {
        "location": sample.location,
        "text": sample.texts[0],
        "pair": sample.texts[1],
        "label": label,
        "prediction": prediction,
        "probability": probability,
        "correct": prediction == label,
    }


def retrieval_row(
    anchor: str,
    relevant: Sequence[int],
    texts: Sequence[str],
    similarity: "NDArray[np.floating[Any]]",
) -> Prediction:
    """Return the row of an anchor, by its similarity to each text, (texts,)."""
    first = int(similarity.argmax())
    own = similarity[list(relevant)].max()
    return {
        "text": anchor,
        "label": [texts[number] for number in relevant],
        "prediction": texts[first],
        "similarity": float(similarity[first]),
        "rank": int((similarity > own).sum()) + 1,
        "correct": first in relevant,
    }
