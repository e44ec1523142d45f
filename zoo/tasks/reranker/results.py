"""Results of rerankers: ranking metrics, and the row of a query."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.inference.processing.similarity import score_error
from zoo.inference.results import EvaluationResults, Prediction, ResultContext
from zoo.metrics.ranks import correlations
from zoo.metrics.retrieval import RANKING_NAMES, ranking_scores
from zoo.overrides import override
from zoo.tasks.reranker.data import TextList

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.tasks.reranker.losses import RankingLoss

# Values of pairs in a batch and in predictions: the grade for metrics, and the numbers of the query
# and of the pair in their split.
GRADES = "grades"
QUERIES = "queries"
PAIRS = "pairs"
SCORE = "score"
METRICS = ("ndcg_at_10", "mrr_at_10", "map")


class RankingResults(EvaluationResults[TextList]):
    """NDCG, MRR and MAP of the texts of each query; ``spearman`` is over all pairs.

    Args:
        loss_of_run: returns the loss of a run, which says what the grades of samples are.
    """

    def __init__(self, loss_of_run: "Callable[[ResultContext], RankingLoss]") -> None:
        self._loss_of_run = loss_of_run

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        return (*METRICS, "spearman")

    @override
    def metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        # Processes may share pairs, which count once.
        _, first_places = np.unique(predictions[PAIRS], return_index=True)
        values = {name: array[first_places] for name, array in predictions.items()}
        order = np.argsort(values[QUERIES], kind="stable")
        ends = np.flatnonzero(np.diff(values[QUERIES][order])) + 1
        ranked: list[tuple[NDArray[Any], float]] = []
        grades = list[dict[int, float]]()
        for places in np.split(order, ends):
            query_grades = values[GRADES][places]
            if query_grades.max() > 0:
                scores = values[SCORE][places].astype(np.float64)
                ranked.append((scores, score_error(scores, context.compute_dtype)))
                grades.append(dict(enumerate(query_grades.tolist())))
        table = ranking_scores(ranked, grades)
        means = dict.fromkeys(RANKING_NAMES, 0.0)
        if len(table):
            means.update(zip(RANKING_NAMES, table.mean(0).tolist(), strict=True))
        metrics = {name: means[name] for name in METRICS}
        metrics["spearman"] = correlations(values[SCORE], values["label"])["spearman"]
        return metrics

    @override
    def mistake(self, row: Prediction) -> float | None:
        return missing_gain(row)

    @override
    def available_metrics(
        self, context: ResultContext, samples: Sequence[TextList]
    ) -> Sequence[str]:
        loss = self._loss_of_run(context)
        if any(max(loss.grades(sample)) > 0 for sample in samples):
            return self.metric_names(context)
        return ()

    @override
    def rows(
        self,
        context: ResultContext,
        predictions: "Mapping[str, NDArray[Any]]",
        samples: Sequence[TextList],
        numbers: Sequence[int],
    ) -> Iterator[Prediction]:
        """Yield a row of each query with a relevant text, as ``zoo eval`` joins its texts."""
        if PAIRS not in predictions:  # In a distillation without the task's loss.
            return
        pairs, first_places = np.unique(predictions[PAIRS], return_index=True)
        texts = [(sample, text) for sample in samples for text in sample.documents]
        query_places: dict[str, list[int]] = {}
        for place, pair in enumerate(pairs.tolist()):
            sample, _ = texts[pair]
            query_places.setdefault(sample.text, []).append(place)
        for query, places in query_places.items():
            grades = predictions[GRADES][first_places[places]]
            scores = predictions[SCORE][first_places[places]].astype(np.float64)
            if grades.max() <= 0:
                continue
            query_texts = [texts[pairs[place]] for place in places]
            documents = tuple(text for _, text in query_texts)
            first_sample, _ = query_texts[0]
            joined = TextList(query, documents, tuple(grades.tolist()), first_sample.location)
            yield ranked_row(joined, (scores, score_error(scores, context.compute_dtype)))


def missing_gain(row: Prediction) -> float | None:
    """Return how much of the gain is missing among the first ten texts; ``None`` for nothing."""
    if row["correct"]:
        return None
    return 1 - float(row["ndcg_at_10"])


def ranked_row(sample: TextList, scored: "tuple[NDArray[np.floating[Any]], float]") -> Prediction:
    """Return the row of a query: the scores of its texts, and their rounding error."""
    scores, _ = scored
    (values,) = ranking_scores([scored], [dict(enumerate(sample.labels))])
    best = int(scores.argmax())
    return {
        "location": sample.location,
        "text": sample.text,
        "documents": list(sample.documents),
        "label": list(sample.labels),
        "prediction": sample.documents[best],
        "scores": [float(score) for score in scores],
        "ndcg_at_10": float(values[0]),
        "correct": sample.labels[best] > 0,
    }
