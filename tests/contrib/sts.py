"""Correlations of similarities, computed by MTEB on pairs that are not on the Hub."""

from collections.abc import Mapping, Sequence
from typing import Any


def local_pairs(columns: Mapping[str, Sequence[Any]], bounds: tuple[float, float]) -> Any:
    """Return a task of MTEB.

    Args:
        columns: ``sentence1``, ``sentence2`` and ``score`` of the pairs.
        bounds: lowest and highest score.
    """
    from datasets import Dataset
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class LocalPairs(AbsTaskSTS):  # type: ignore[misc]
        metadata = TaskMetadata(
            name="LocalPairs",
            description="Pairs that are given.",
            dataset={"path": "none", "revision": "0"},
            type="STS",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )
        min_score, max_score = bounds

        def load_data(self, *_: Any, **__: Any) -> None:
            self.dataset, self.data_loaded = {"test": Dataset.from_dict(dict(columns))}, True

    return LocalPairs()


def mteb_scores(
    encoder: Any, columns: Mapping[str, Sequence[Any]], bounds: tuple[float, float]
) -> dict[str, float]:
    """Return the scores of MTEB for an encoder; see ``local_pairs``."""
    import mteb

    task = local_pairs(columns, bounds)
    result = mteb.evaluate(encoder, task, cache=None, raise_error=True)
    (scores,) = result.task_results[0].scores["test"]
    return dict(scores)
