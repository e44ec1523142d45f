"""Retrieval by sentence embeddings, against the formulas of InformationRetrievalEvaluator."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zoo
from tests.evaluation.conftest import Small
from tests.finetuning.making import write_table
from tests.tasks.sentence_embedding.making import pooled
from zoo.errors import UsageError
from zoo.inference.processing.similarity import similarity_rows
from zoo.metrics.retrieval import NAMES, retrieval_scores
from zoo.sentence_models.pooling import Pooling
from zoo.tasks import make_evaluation

TASK = "sentence-embedding"
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
ROWS = [
    {"text": "a b", "pair": "b a", "other": "j"},
    {"text": "c d e", "pair": "e d", "other": "h i"},
    {"text": "a b", "pair": "a a b", "other": "c c"},  # a second text of the first anchor
    {"text": "f g", "pair": "b a", "other": "j"},  # a text of two anchors
    {"text": "i j h", "pair": "h h j i", "other": "g f"},
]


def test_retrieval_is_over_distinct_texts_and_negatives(small: Small, tmp_path: Path) -> None:
    """By sets of relevant texts and a sorted list per query, as the evaluator has them."""
    model, _ = small("BertModel")
    data = write_table(tmp_path / "t.jsonl", ROWS)
    columns: dict[str, Any] = {"pair": "pair", "negative": ("other",)}
    result = zoo.evaluate(model, task=TASK, eval=data, **columns)
    corpus = list(dict.fromkeys(row[name] for row in ROWS for name in ("pair", "other")))
    queries = list(dict.fromkeys(row["text"] for row in ROWS))
    units = {
        text: vector / np.linalg.norm(vector)
        for text, vector in zip([*queries, *corpus], model.embed([*queries, *corpus]), strict=True)
    }
    expected: dict[str, list[float]] = {name: [] for name in NAMES}
    for query in queries:
        wanted = {row["pair"] for row in ROWS if row["text"] == query}
        ranked = sorted(corpus, key=lambda text: -float(units[query] @ units[text]))
        expected["mrr"].append(1 / (1 + min(ranked.index(text) for text in wanted)))
        expected["accuracy"].append(float(ranked[0] in wanted))
        for cutoff in (1, 5, 10):
            share = len(wanted & set(ranked[:cutoff])) / len(wanted)
            expected[f"recall_at_{cutoff}"].append(share)
    means = {name: float(np.mean(values)) for name, values in expected.items()}
    assert result.metrics == pytest.approx({**means, "queries": 4, "texts": len(corpus)})
    low, high = result.details["intervals"]["mrr"]
    assert low <= result.metrics["mrr"] <= high


def test_scores_are_correlated_where_the_file_has_them(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertModel")
    scored = [{**row, "label": number % 3} for number, row in enumerate(ROWS)]
    data = write_table(tmp_path / "t.jsonl", scored)
    assert "spearman" in zoo.evaluate(model, task=TASK, eval=data, pair="pair").metrics
    named = zoo.evaluate(model, task=TASK, eval=data, pair="pair", negative=["other"]).metrics
    assert "mrr" in named and "spearman" not in named
    with pytest.raises(UsageError, match="pairs with scores have no negatives"):
        zoo.evaluate(model, task=TASK, eval=data, pair="pair", label="label", negative=["other"])
    plain = write_table(tmp_path / "plain.jsonl", [json.loads(json.dumps(r)) for r in ROWS])
    assert zoo.evaluate(model, task=TASK, eval=plain, pair="pair").metrics["texts"] == 4


def test_long_texts_are_read_in_windows(small: Small, tmp_path: Path) -> None:
    """Correlation and retrieval of vectors that are pooled over windows."""
    stats: Any = pytest.importorskip("scipy.stats")
    model, _ = small("BertModel")
    long_rows = list[dict[str, Any]]()
    for number, row in enumerate(ROWS):
        pair = " ".join([row["pair"], row["other"]] * (3 + number))
        long_rows.append({"text": row["text"], "pair": pair, "label": number % 3})
    texts = [row["text"] for row in long_rows]
    pairs = [row["pair"] for row in long_rows]
    options: dict[str, Any] = {"max_seq_len": 9, "doc_stride": 2, "window_pooling": "max"}
    first = model.embed(texts)
    second = model.embed(pairs, **options)
    norms = np.linalg.norm(first, axis=1)[:, None] * np.linalg.norm(second, axis=1)
    cosines = first @ second.T / norms
    data = write_table(tmp_path / "t.jsonl", long_rows)
    result = zoo.evaluate(model, task=TASK, eval=data, pair="pair", **options)
    labels = [row["label"] for row in long_rows]
    expected = stats.spearmanr(np.diag(cosines), labels).statistic
    assert result.metrics["spearman"] == pytest.approx(expected)
    assert "truncated" not in result.metrics
    unlabelled = [{"text": row["text"], "pair": row["pair"]} for row in long_rows]
    plain = write_table(tmp_path / "plain.jsonl", unlabelled)
    found = zoo.evaluate(model, task=TASK, eval=plain, pair="pair", **options).metrics
    queries = list(dict.fromkeys(texts))
    reciprocal_ranks = []
    for query in queries:
        scores = cosines[texts.index(query)]
        own = [scores[k] for k, text in enumerate(texts) if text == query]
        reciprocal_ranks.append(1 / (1 + int((scores > max(own)).sum())))
    assert found["mrr"] == pytest.approx(np.mean(reciprocal_ranks))


def test_embeddings_are_cut(small: Small, tmp_path: Path) -> None:
    """Correlation and retrieval of the first 8 numbers of each embedding."""
    stats: Any = pytest.importorskip("scipy.stats")
    model, _ = small("BertModel")
    scored = [{**row, "label": number % 3} for number, row in enumerate(ROWS)]
    data = write_table(tmp_path / "t.jsonl", scored)
    columns = {name: model.embed([row[name] for row in ROWS])[:, :8] for name in ("text", "pair")}
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in columns.values()]
    cosines = (units[0] * units[1]).sum(1)
    found = {
        dim: zoo.evaluate(model, task=TASK, eval=data, pair="pair", dim=dim).metrics["pearson"]
        for dim in (8, None)
    }
    expected = stats.pearsonr(cosines, [row["label"] for row in scored]).statistic
    assert found[8] == pytest.approx(expected, abs=1e-4)
    assert found[None] != pytest.approx(expected, abs=1e-3)
    retrieval = zoo.evaluate(model, task=TASK, eval=data, pair="pair", negative=("other",), dim=8)
    assert retrieval.metrics["queries"] == 4
    with pytest.raises(UsageError, match="cannot be cut at 33 numbers; the model's"):
        zoo.evaluate(model, task=TASK, eval=data, pair="pair", dim=33)


@pytest.mark.by_default("dot")
@pytest.mark.parametrize("function", ["dot", "euclidean"])
def test_prompts_and_similarity_are_those_of_the_model(
    small: Small, tmp_path: Path, function: Any
) -> None:
    model, _ = small("BertModel")
    settings = Pooling(
        prompts={"query": "j i ", "passage": "h ", "web": "e e "},
        default_prompt_name="web",
        similarity_fn_name=function,
    )
    encoder = pooled(model, settings)
    data = write_table(tmp_path / "t.jsonl", [{**r, "score": k} for k, r in enumerate(ROWS)])

    def similarity(first: str, second: str) -> float:
        a, b = pooled(model, Pooling()).embed([first, second]).astype(np.float64)
        return float(a @ b if function == "dot" else -np.linalg.norm(a - b))

    def metrics(**columns: Any) -> Mapping[str, float]:
        task = make_evaluation(TASK, encoder.checkpoint, encoder.session, **columns)
        return task.evaluate([data]).metrics

    corpus = list(dict.fromkeys(row["pair"] for row in ROWS))
    ranks = []
    for query in dict.fromkeys(row["text"] for row in ROWS):
        wanted = {row["pair"] for row in ROWS if row["text"] == query}
        order = sorted(corpus, key=lambda text: -similarity(f"j i {query}", f"h {text}"))
        ranks.append(1 + min(order.index(text) for text in wanted))
    assert metrics(pair="pair")["mrr"] == pytest.approx(float(np.mean([1 / r for r in ranks])))
    similarities = [similarity(f"e e {r['text']}", f"e e {r['pair']}") for r in ROWS]
    expected = np.corrcoef(similarities, range(len(ROWS)))[0, 1]
    assert metrics(pair="pair", label="score")["pearson"] == pytest.approx(expected, abs=1e-4)


def test_ties_are_of_the_dtype_of_the_session(small: Small, tmp_path: Path) -> None:
    """Of a model with random weights, the cosines of bfloat16 are about equal."""
    model, _ = small("BertModel")
    data = write_table(tmp_path / "t.jsonl", ROWS)
    half = zoo.load(str(model.checkpoint.path), backend="cpu", dtype="bfloat16")
    queries, corpus = (list(dict.fromkeys(row[name] for row in ROWS)) for name in ("text", "pair"))
    relevant = [
        sorted({corpus.index(row["pair"]) for row in ROWS if row["text"] == query})
        for query in queries
    ]
    vectors = half.embed(queries), half.embed(corpus)
    scores = {
        dtype: retrieval_scores(similarity_rows(*vectors, "cosine", dtype), relevant)
        .mean(0)
        .tolist()
        for dtype in ("float32", "bfloat16")
    }
    assert scores["float32"] != scores["bfloat16"]
    metrics = zoo.evaluate(half, task=TASK, eval=data, pair="pair").metrics
    assert [metrics[name] for name in NAMES] == pytest.approx(scores["bfloat16"])
