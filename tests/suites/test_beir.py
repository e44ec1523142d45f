"""Small corpora of BEIR against InformationRetrievalEvaluator of sentence-transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zoo
from tests.checkpoints import Make
from tests.inference.conftest import converted
from tests.suites.frozen_folders import make_beir
from tests.suites.reference import Reference
from zoo.errors import SourceError
from zoo.tasks.retrieval.data import read_texts

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
FLOAT64: dict[str, Any] = {"backend": "cpu", "dtype": "float64"}
NAMES = ("nfcorpus", "arguana", "fiqa")


def ranked(reference: Reference, query: str, texts: Mapping[str, str]) -> list[str]:
    """Return the ids of texts, the most similar first."""
    cosines = reference.cosines([query] * len(texts), list(texts.values()))
    return [list(texts)[number] for number in np.argsort(-cosines, kind="stable")]


def gain(ids: list[str], grades: Mapping[str, int]) -> float:
    """Return NDCG of the first ten: gains over log2 of the rank plus one, as in trec_eval."""
    found = sum(grades.get(name, 0) / np.log2(rank + 2) for rank, name in enumerate(ids[:10]))
    best = sorted(grades.values(), reverse=True)[:10]
    return float(found / sum(grade / np.log2(rank + 2) for rank, grade in enumerate(best)))


def precision(ids: list[str], grades: Mapping[str, int]) -> float:
    """Return the mean precision at the ranks of relevant texts."""
    ranks = sorted(ids.index(name) + 1 for name in grades)
    return float(np.mean([number / rank for number, rank in enumerate(ranks, 1)]))


def test_metrics_of_rankings(hub_checkpoint: Make, tmp_path: Path) -> None:
    """In ArguAna a query is not found by itself; elsewhere equal ids mean nothing."""
    source = hub_checkpoint("BertModel")
    relevance = make_beir(tmp_path / "beir", NAMES, texts=120)
    reference = Reference(source)
    expected: dict[str, Any] = {}
    for name in NAMES:
        folder = tmp_path / "beir" / name
        corpus = read_texts([folder / "corpus.jsonl"])
        queries = read_texts([folder / "queries.jsonl"])
        values = []
        for query, grades in relevance[name].items():
            texts = corpus
            if name == "arguana":
                texts = {key: text for key, text in corpus.items() if key != query}
            ids = ranked(reference, queries[query], texts)
            recall = sum(key in ids[:100] for key in grades) / len(grades)
            values.append((gain(ids, grades), recall, precision(ids, grades)))
        ndcg, recall, average = np.mean(np.array(values), axis=0)
        expected[name] = {
            "ndcg_at_10": ndcg,
            "recall_at_100": recall,
            "map": average,
            "score": 100 * ndcg,
        }
    model = converted(source, tmp_path / "model").path
    result = zoo.evaluate(
        model,
        suite="beir-small",
        eval=tmp_path / "beir",
        tasks=",".join(NAMES),
        backend="cpu",
        dtype="float64",
    )
    for name, metrics in expected.items():
        assert result.details["tasks"][name] == pytest.approx(metrics, abs=1e-5), name
    mean = np.mean([metrics["score"] for metrics in expected.values()])
    assert result.metrics["average"] == pytest.approx(mean, abs=1e-4)


def test_folders_that_are_missing(hub_checkpoint: Make, tmp_path: Path) -> None:
    make_beir(tmp_path / "beir", ["scifact", "scidocs"])
    (tmp_path / "beir" / "scidocs" / "qrels" / "test.tsv").rename(
        tmp_path / "beir" / "scidocs" / "qrels" / "dev.tsv"
    )
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    result = zoo.evaluate(model, suite="beir-small", eval=tmp_path / "beir", **FLOAT64)
    assert list(result.details["tasks"]) == ["scifact"]
    missing = result.details["missing_files"]
    assert missing["nfcorpus"] == f"{tmp_path / 'beir'} has no folder nfcorpus"
    assert missing["scidocs"].endswith("qrels/test.tsv does not exist")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="has no folder nfcorpus"):
        zoo.evaluate(model, suite="beir-small", eval=tmp_path / "empty", **FLOAT64)
