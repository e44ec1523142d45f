"""Retrieval, reranking and pair classification in MTEB, on texts that are not on the Hub."""

from collections.abc import Mapping, Sequence
from typing import Any

NAMES = ("ndcg_at_10", "mrr_at_10", "map_at_1000", "recall_at_5", "recall_at_10", "accuracy")


def retrieval_scores(
    encoder: Any,
    queries: Mapping[str, str],
    corpus: Mapping[str, str],
    relevant: Mapping[str, Mapping[str, int]],
    candidates: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, float]:
    """Return the scores of MTEB.

    Args:
        encoder: an encoder of MTEB, or of sentence-transformers.
        queries: id -> text.
        corpus: id -> text.
        relevant: query -> text -> grade.
        candidates: query -> the texts that are reranked; ``None`` for retrieval.
    """
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    class LocalRetrieval(AbsTaskRetrieval):  # type: ignore[misc]
        metadata = _metadata("Retrieval" if candidates is None else "Reranking", NAMES[0])

        def load_data(self, *_: Any, **__: Any) -> None:
            split = {
                "corpus": Dataset.from_list([_row(k, text) for k, text in corpus.items()]),
                "queries": Dataset.from_list([_row(k, text) for k, text in queries.items()]),
                "relevant_docs": {query: dict(grades) for query, grades in relevant.items()},
                "top_ranked": candidates,
            }
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    return _scores(encoder, LocalRetrieval())


def pair_scores(encoder: Any, pairs: Sequence[tuple[str, str]], labels: Sequence[int]) -> Any:
    """Return the scores of MTEB for pairs of texts with labels 0 and 1."""
    from datasets import Dataset
    from mteb.abstasks.pair_classification import AbsTaskPairClassification

    columns = {
        "sentence1": [first for first, _ in pairs],
        "sentence2": [second for _, second in pairs],
        "labels": list(labels),
    }

    class LocalPairs(AbsTaskPairClassification):  # type: ignore[misc]
        metadata = _metadata("PairClassification", "cosine_ap")

        def load_data(self, *_: Any, **__: Any) -> None:
            self.dataset = {"test": Dataset.from_dict(columns)}
            self.data_loaded = True

    return _scores(encoder, LocalPairs())


def _row(name: str, text: str) -> dict[str, str]:
    return {"id": name, "title": "", "text": text}


def _metadata(kind: str, score: str) -> Any:
    from mteb.abstasks.task_metadata import TaskMetadata

    return TaskMetadata(
        name=f"Local{kind}",
        description="Texts that are given.",
        dataset={"path": "none", "revision": "0"},
        type=kind,
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=score,
    )


def _scores(encoder: Any, task: Any) -> dict[str, float]:
    import mteb

    result = mteb.evaluate(encoder, task, cache=None, raise_error=True)
    (scores,) = result.task_results[0].scores["test"]
    return dict(scores)
