"""Correlations of similarities, computed by MTEB on pairs that are not on the Hub."""

from collections.abc import Mapping, Sequence
from typing import Any


def mteb_scores(
    encoder: Any, columns: Mapping[str, Sequence[Any]], bounds: tuple[float, float]
) -> dict[str, float]:
    """Return the scores of MTEB for an encoder.

    Args:
        encoder: an encoder of MTEB.
        columns: ``sentence1``, ``sentence2`` and ``score`` of the pairs.
        bounds: lowest and highest score.
    """
    import mteb
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

    result = mteb.evaluate(encoder, LocalPairs(), cache=None, raise_error=True)
    (scores,) = result.task_results[0].scores["test"]
    return dict(scores)
