"""Order of a query's texts, against the reranking evaluators of sentence-transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import zoo
from tests.checkpoints import Make
from tests.evaluation.conftest import Small
from tests.finetuning.making import write_table
from tests.inference.conftest import converted
from tests.tasks.reranker.making import late, samples, sparse
from tests.tasks.retrieval.making import beir
from tests.tasks.sentence_embedding.making import library_encoder
from zoo.errors import ZooError

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
TASK = "reranker"


def tables(path: Path) -> dict[str, tuple[Path, Mapping[str, Any]]]:
    """Write the samples in all forms; return the files and the columns."""
    lists, rows = samples(), []
    for sample in lists:
        labelled = [(text, 1) for text in sample["positive"]]
        labelled += [(text, 0) for text in sample["negative"]]
        rows += [{"text": sample["query"], "pair": text, "label": n} for text, n in labelled]
    rows.sort(key=lambda row: str(row["pair"]))  # rows of a query need not be adjacent
    graded = [
        {
            "query": s["query"],
            "texts": s["positive"] + s["negative"],
            "grades": [1] * len(s["positive"]) + [0] * len(s["negative"]),
        }
        for s in lists
    ]
    names: Mapping[str, Any] = {"text": "query", "pair": "positive", "negative": ("negative",)}
    return {
        "rows": (write_table(path / "rows.tsv", rows), {"pair": "pair"}),
        "negatives": (write_table(path / "negatives.jsonl", lists), names),
        "grades": (
            write_table(path / "grades.jsonl", graded),
            {"text": "query", "pair": "texts", "label": "grades"},
        ),
    }


def test_an_encoder_has_the_metrics_of_the_library(hub_checkpoint: Make, tmp_path: Path) -> None:
    evaluation: Any = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    source = hub_checkpoint("BertModel")
    model = converted(source, tmp_path / "model").path
    evaluator = evaluation.RerankingEvaluator(samples(), at_k=10, write_csv=False)
    theirs = evaluator(library_encoder(source).eval())
    found = {
        name: zoo.evaluate(model, task=TASK, eval=file, backend="cpu", **columns).metrics
        for name, (file, columns) in tables(tmp_path).items()
    }
    expected = {
        "ndcg_at_10": theirs["ndcg@10"],
        "mrr_at_10": theirs["mrr@10"],
        "map": theirs["map"],
    }
    for metrics in found.values():
        assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert found["rows"]["queries"] == 8 and found["rows"]["texts"] == 47


def test_a_cross_encoder_has_the_metrics_of_the_library(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Which applies a sigmoid by default; it does not change the order."""
    library: Any = pytest.importorskip("sentence_transformers")
    evaluation: Any = pytest.importorskip("sentence_transformers.cross_encoder.evaluation")
    source = hub_checkpoint("BertForSequenceClassification", num_labels=1)
    model = converted(source, tmp_path / "model").path
    evaluator = evaluation.CrossEncoderRerankingEvaluator(samples(), at_k=10, write_csv=False)
    theirs = evaluator(library.CrossEncoder(str(source), device="cpu"))
    file, columns = tables(tmp_path)["negatives"]
    rows: list[Any] = []
    ours = zoo.evaluate(
        model, task=TASK, eval=file, backend="cpu", on_prediction=rows.append, **columns
    )
    expected = {"map": theirs["map"], **{f"{n}_at_10": theirs[f"{n}@10"] for n in ("ndcg", "mrr")}}
    assert {n: ours.metrics[n] for n in expected} == pytest.approx(expected, abs=1e-6)
    first = rows[0]
    best = first["scores"].index(max(first["scores"]))
    assert first["prediction"] == first["documents"][best]
    assert first["correct"] == (first["label"][best] > 0)


def test_a_classifier_of_two_labels_ranks_by_its_log_odds(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForSequenceClassification")
    file, columns = tables(tmp_path)["negatives"]
    rows: list[Any] = []
    zoo.evaluate(model, task=TASK, eval=file, on_prediction=rows.append, **columns)
    pairs = [(rows[0]["text"], text) for text in rows[0]["documents"]]
    shares = [list(r["scores"].values())[1] for r in model.run("classify", pairs)]
    order = sorted(range(len(pairs)), key=lambda k: -shares[k])
    assert order == sorted(range(len(pairs)), key=lambda k: -rows[0]["scores"][k])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair": None}, "ranks texts for a query; name the column of the texts with --pair"),
        ({"pair": "pair", "label": "grade"}, "has no column 'grade'"),
        ({"pair": "pair", "label": "text"}, "which is not a number"),
        ({"pair": "pair", "dim": 99}, "cannot be cut at 99 numbers"),
    ],
)
def test_what_does_not_fit_is_one_line(
    small: Small, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    model, _ = small("BertModel")
    file, _ = tables(tmp_path)["rows"]
    with pytest.raises(ZooError, match=message):
        zoo.evaluate(model, task=TASK, eval=file, **options)


def test_a_query_without_texts_is_refused(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertModel")
    rows: list[dict[str, Any]] = [
        {"text": "a", "pair": ["b"], "label": [1]},
        {"text": "c", "pair": [], "label": []},
    ]
    with pytest.raises(ZooError, match="jsonl:2 has no texts"):
        zoo.evaluate(model, task=TASK, eval=write_table(tmp_path / "t.jsonl", rows), pair="pair")


def test_a_reranker_does_not_search(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForSequenceClassification", num_labels=1)
    beir(tmp_path / "data")
    with pytest.raises(
        ZooError, match="scores pairs of texts and does not search a corpus; `zoo run rerank`"
    ):
        zoo.evaluate(model, task="retrieval", eval=tmp_path / "data")


@pytest.mark.by_default("late")
@pytest.mark.parametrize("kind", ["sparse", "late"])
def test_sparse_and_late_models_rank_as_the_library(
    hub_checkpoint: Make, tmp_path: Path, kind: str
) -> None:
    """Also through a corpus, with the prompts of queries and documents."""
    made: Any = {"sparse": sparse, "late": late}[kind](hub_checkpoint)
    made.save(str(tmp_path / "hub"), create_model_card=False)
    model = converted(tmp_path / "hub", tmp_path / "model").path
    file, columns = tables(tmp_path)["negatives"]
    rows: list[Any] = []
    zoo.evaluate(model, task=TASK, eval=file, on_prediction=rows.append, backend="cpu", **columns)
    for row in rows[:3]:
        query, documents = made.encode_query([row["text"]]), made.encode_document(row["documents"])
        expected = made.similarity(query, documents)[0].tolist()
        assert row["scores"] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    beir(tmp_path / "data")
    found = zoo.evaluate(model, task="retrieval", eval=tmp_path / "data", backend="cpu")
    assert found.metrics["queries"] == 11
