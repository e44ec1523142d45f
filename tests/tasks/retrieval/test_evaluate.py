"""Retrieval over a corpus, against InformationRetrievalEvaluator of sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import pytest

import zoo
from tests import warm
from tests.checkpoints import Make
from tests.evaluation.conftest import Small
from tests.inference.conftest import converted
from tests.tasks.retrieval.making import beir
from tests.tasks.sentence_embedding.making import library_encoder
from zoo.errors import UsageError, ZooError
from zoo.tasks.retrieval.data import read_qrels, read_texts

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
TASK = "retrieval"


@pytest.mark.parametrize("prompts", [{}, {"query": "a b ", "corpus": "c d "}])
def test_metrics_are_those_of_the_library(
    hub_checkpoint: Make, tmp_path: Path, prompts: dict[str, str]
) -> None:
    """Of relevance without grades, on the same embeddings, also with prompts."""
    evaluation: Any = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    source = hub_checkpoint("BertModel")
    relevance = beir(tmp_path / "data", seed=3)  # whose cosines differ by more than rounding
    flat = {
        query: {name for name, grade in grades.items() if grade > 0}
        for query, grades in relevance.items()
    }
    lines = [f"{query} 0 {name} 1" for query, names in flat.items() for name in names]
    (tmp_path / "qrels.txt").write_text("\n".join(lines) + "\n")
    model = converted(source, tmp_path / "model").path
    ours = zoo.evaluate(
        model,
        task=TASK,
        eval=tmp_path / "data" / "corpus.jsonl",
        queries=str(tmp_path / "data" / "queries.jsonl"),
        qrels=str(tmp_path / "qrels.txt"),
        backend="cpu",
        prompt=prompts.get("query"),
        corpus_prompt=prompts.get("corpus"),
    )
    queries = read_texts([tmp_path / "data" / "queries.jsonl"])
    evaluator = evaluation.InformationRetrievalEvaluator(
        queries,
        read_texts([tmp_path / "data" / "corpus.jsonl"]),
        flat,
        mrr_at_k=[10],
        ndcg_at_k=[10],
        accuracy_at_k=[1],
        precision_recall_at_k=[1, 5, 10, 100],
        map_at_k=[100],
        write_csv=False,
        query_prompt=prompts.get("query"),
        corpus_prompt=prompts.get("corpus"),
    )
    theirs = evaluator(library_encoder(source).eval())
    expected = {
        "ndcg_at_10": theirs["cosine_ndcg@10"],
        "mrr_at_10": theirs["cosine_mrr@10"],
        "map": theirs["cosine_map@100"],  # there are 40 texts
        "map_at_100": theirs["cosine_map@100"],
        "accuracy": theirs["cosine_accuracy@1"],
        **{f"recall_at_{k}": theirs[f"cosine_recall@{k}"] for k in (1, 5, 10, 100)},
    }
    assert ours.metrics == pytest.approx({**expected, "queries": 11, "texts": 40}, abs=1e-6)
    low, high = ours.details["intervals"]["ndcg_at_10"]
    assert low < ours.metrics["ndcg_at_10"] < high


def test_both_formats_of_relevance_and_the_predictions(small: Small, tmp_path: Path) -> None:
    """Grades count; a query's row has its rank and gain."""
    model, _ = small("BertModel")
    relevance = beir(tmp_path / "beir")
    beir(tmp_path / "trec", trec=True)
    rows: list[Any] = []
    first = zoo.evaluate(model, task=TASK, eval=tmp_path / "beir", on_prediction=rows.append)
    second = zoo.evaluate(model, task=TASK, eval=tmp_path / "trec")
    assert first.metrics == second.metrics
    assert [row["location"] for row in rows] == list(relevance)
    mean = sum(row["ndcg_at_10"] for row in rows) / len(rows)
    assert first.metrics["ndcg_at_10"] == pytest.approx(mean)
    assert "d39" not in rows[0]["label"], "a grade of 0 is not relevant"
    assert [row["rank"] == 1 for row in rows] == [row["correct"] for row in rows]
    fewer = zoo.evaluate(model, task=TASK, eval=tmp_path / "beir", limit=3, dim=8)
    assert fewer.metrics["queries"] == 3


@pytest.mark.parametrize("header", ["", "query-id{0}corpus-id{0}score\n", "sep={0}\n"])
@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "|"])
def test_relevance_with_other_separators(tmp_path: Path, header: str, delimiter: str) -> None:
    lines = [header.format(delimiter), "q1{0}d3{0}1\n", "q1{0}d4{0}2\n", "q2{0}d 5{0}0\n"]
    (tmp_path / "qrels.csv").write_text("".join(line.format(delimiter) for line in lines))
    judged = {"q1": {"d3": 1.0, "d4": 2.0}, "q2": {"d 5": 0.0}}
    assert read_qrels(tmp_path / "qrels.csv") == judged


def test_queries_without_a_relevant_text_are_left_out(
    small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, _ = small("BertModel")
    beir(tmp_path / "data")
    qrels = tmp_path / "data" / "qrels" / "test.tsv"
    qrels.write_text("q1\td3\t1\nq2\td4\t0\n")
    with caplog.at_level("WARNING", "zoo"):
        assert zoo.evaluate(model, task=TASK, eval=tmp_path / "data").metrics["queries"] == 1
    assert "1 queries have no relevant text" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "q1 0 d99 1",
            r"judges 'd99', which is not among the texts of .*corpus.jsonl; did you mean d9",
        ),
        ("qq 0 d1 1", r"judges 'qq', which is not among the queries of .*queries.jsonl"),
        ("q1 0 d1 high", "is 'q1 0 d1 high', not a judgement"),
        ("q1 d1", "is 'q1 d1', not a judgement; a line is 'QUERY 0 TEXT GRADE' as in TREC"),
        ("q1 0 d1 1\nq1 0 d1 2", "qrels.txt:2 judges 'd1' for 'q1' again"),
        ("q1 0 d1 0", "has no relevant text"),
        ("", "has no judgements"),
    ],
)
def test_relevance_that_does_not_fit_is_one_line(
    small: Small, tmp_path: Path, change: str, message: str
) -> None:
    model, _ = small("BertModel")
    beir(tmp_path / "data")
    (tmp_path / "qrels.txt").write_text(change)
    options: dict[str, Any] = {
        "queries": str(tmp_path / "data" / "queries.jsonl"),
        "qrels": str(tmp_path / "qrels.txt"),
    }
    with pytest.raises(ZooError, match=message):
        zoo.evaluate(model, task=TASK, eval=tmp_path / "data" / "corpus.jsonl", **options)


def test_files_that_do_not_fit_are_one_line(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertModel")
    beir(tmp_path / "data")
    corpus = tmp_path / "data" / "corpus.jsonl"
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (corpus, {}, "needs queries and their relevant texts"),
        (tmp_path / "data", {"split": "dev"}, "dev.tsv does not exist; --split is one of test"),
        (tmp_path, {}, "corpus.jsonl does not exist; a BEIR folder has"),
    ]
    for data, options, message in cases:
        with pytest.raises(ZooError, match=message):
            zoo.evaluate(model, task=TASK, eval=data, **options)
    with corpus.open("a") as file:
        file.write(json.dumps({"_id": "d0", "text": "a"}) + "\n")
    with pytest.raises(UsageError, match=r"corpus.jsonl:41: the id 'd0' occurs twice"):
        zoo.evaluate(model, task=TASK, eval=tmp_path / "data")


def test_the_command(hub_checkpoint: Make, tmp_path: Path) -> None:
    """The result is recorded, with the digests of all three files."""
    beir(tmp_path / "data")
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    words = ("eval", model, "--task", TASK, "--eval", tmp_path / "data", "--backend", "cpu")
    done = warm.zoo(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("ndcg_at_10 ")
    (record,) = json.loads((model / "zoo.json").read_text())["evaluations"]
    assert sorted(record["data"]) == ["corpus.jsonl", "qrels/test.tsv", "queries.jsonl"]
    assert read_qrels(tmp_path / "data" / "qrels" / "test.tsv")["q0"]["d39"] == 0


@pytest.mark.long
def test_columns_of_any_name(small: Small, tmp_path: Path) -> None:
    """The metrics are those of the same data under the usual names."""
    model, _ = small("BertModel")
    beir(tmp_path / "usual")
    beir(tmp_path / "renamed")
    expected = zoo.evaluate(model, task=TASK, eval=tmp_path / "usual")
    for name, column in (("corpus", "body"), ("queries", "question")):
        file = tmp_path / "renamed" / f"{name}.jsonl"
        file.write_text(file.read_text().replace('"text"', f'"{column}"'))
    columns: dict[str, Any] = {"corpus_text": "body", "query_text": "question"}
    renamed = zoo.evaluate(model, task=TASK, eval=tmp_path / "renamed", **columns)
    assert renamed.metrics == expected.metrics
    # The column next to the ids is found without its name.
    columns = {"corpus_text": "body"}
    assert zoo.evaluate(model, task=TASK, eval=tmp_path / "renamed", **columns) == renamed
    with pytest.raises(UsageError, match=r"_id, title, body, metadata, .* --corpus-text$"):
        zoo.evaluate(model, task=TASK, eval=tmp_path / "renamed")
    columns = {"corpus_text": "body", "query_text": "questions"}
    with pytest.raises(UsageError, match=r"'questions'; did you mean question\? There are _id, q"):
        zoo.evaluate(model, task=TASK, eval=tmp_path / "renamed", **columns)


@pytest.mark.by_default(".txt")
@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".txt"])
def test_texts_without_ids_are_numbered(
    small: Small, tmp_path: Path, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The numbers are those of ``zoo run search``; the metrics are those of the data with ids."""
    model, _ = small("BertModel")
    relevance = beir(tmp_path / "ids")
    expected = zoo.evaluate(model, task=TASK, eval=tmp_path / "ids")
    for name in ("corpus", "queries"):
        lines = []
        for row in (tmp_path / "ids" / f"{name}.jsonl").read_text().splitlines():
            values = json.loads(row)
            text = f"{values.get('title', '')} {values['text']}".strip()
            lines.append(json.dumps({"body": text}) if ending == ".jsonl" else text)
        if ending == ".csv":
            lines.insert(0, "body")
        (tmp_path / f"{name}{ending}").write_text("\n".join(lines) + "\n")
    judged = []
    for query, grades in relevance.items():
        judged += [f"{query[1:]} 0 {text[1:]} {grade}" for text, grade in grades.items()]
    (tmp_path / "qrels.txt").write_text("\n".join(judged) + "\n")
    files: dict[str, Any] = {
        "eval": tmp_path / f"corpus{ending}",
        "queries": str(tmp_path / f"queries{ending}"),
        "qrels": str(tmp_path / "qrels.txt"),
    }
    with caplog.at_level("INFO", "zoo"):
        found = zoo.evaluate(model, task=TASK, **files)
    assert found.metrics == expected.metrics
    assert f"corpus{ending} has no column _id or id: its texts are numbered from 0" in caplog.text
    column = "body" if ending == ".jsonl" else None
    search = model.search(["a"], files["eval"], corpus_text=column, top_k=40)[0]["results"]
    texts = read_texts([files["eval"]])
    for hit in search:
        assert texts[str(hit["corpus_id"])] == hit.get("text", hit.get("body"))
    (tmp_path / "qrels.txt").write_text("40 0 1 1\n")
    with pytest.raises(UsageError, match=r"judges '40', .* numbered from 0, like corpus_id of"):
        zoo.evaluate(model, task=TASK, **files)


def test_files_with_and_without_ids_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n7,a\n")
    (tmp_path / "b.csv").write_text("text\nb\n")
    (tmp_path / "c.txt").write_text("one\n\nthree\n")
    paths = [tmp_path / name for name in ("a.csv", "b.csv", "c.txt")]
    for second in paths[1:]:
        with pytest.raises(UsageError, match="'_id'"):
            read_texts([paths[0], second])
    expected = {"0": "a", "1": "b", "2": "one", "3": "", "4": "three"}
    assert read_texts(paths, use_ids=False) == expected
