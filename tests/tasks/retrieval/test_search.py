"""``zoo run search`` on tables, and mistakes that are reported before the model is loaded."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import cold, warm
from tests.checkpoints import Make
from tests.inference.conftest import Small, converted
from zoo.api import Model

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
WORDS = "abcdefghij"
TEXTS = [" ".join(WORDS[(k * 7 + i) % 10] for i in range(1 + k % 9)) for k in range(30)]
QUERIES = ["a b c", "j i h g", "d"]


@pytest.fixture
def model(small: Small) -> Model:
    return small("BertModel")[0]


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    """A corpus and queries, in which no column has a usual name."""
    corpus = tmp_path / "articles.csv"
    with corpus.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "title", "body"], *([k, "t", t] for k, t in rows())])
    queries = tmp_path / "questions.jsonl"
    lines = [json.dumps({"number": k, "question": text}) for k, text in enumerate(QUERIES)]
    queries.write_text("\n".join(lines) + "\n")
    return corpus, queries


def rows() -> list[tuple[int, str]]:
    return [(100 + k, text) for k, text in enumerate(TEXTS)]


def nearest(model: Model, count: int) -> list[list[int]]:
    """Return the numbers of the closest texts of each query by cosines in float64."""
    queries = model.embed(QUERIES).astype(np.float64)
    texts = model.embed(TEXTS).astype(np.float64)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    order = np.argsort(-(queries @ texts.T), axis=1, kind="stable")
    closest: list[list[int]] = order[:, :count].tolist()
    return closest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run embed MODEL text --dim 33", "cannot be cut at 33 numbers; the model's embeddings ha"),
        ("run embed MODEL text --prompt query", "the model has no prompt 'query': it has none"),
        ("run search MODEL text --corpus CORPUS --corpus-text body --prompt q", "no prompt 'q'"),
        ("run rerank MODEL text another", "rerank sorts texts by a query; give --query TEXT"),
        (
            "run embed MODEL --input CORPUS -o x.pkl",
            "end the name in .jsonl, .ndjson, .csv, .tsv, ",
        ),
        (
            "eval MODEL --task sentence-embedding --eval CORPUS --pair body --dim 33",
            "embeddings cannot be cut at 33 numbers",
        ),
        (
            "eval MODEL --task retrieval --eval CORPUS --corpus-text body --queries QUERIES "
            "--query-text question --qrels QUERIES --corpus-prompt q",
            "the model has no prompt 'q'",
        ),
    ],
)
def test_options_are_judged_before_the_weights_are_loaded(
    hub_checkpoint: Make, tables: tuple[Path, Path], tmp_path: Path, words: str, message: str
) -> None:
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    names = {"CORPUS": str(tables[0]), "QUERIES": str(tables[1]), "MODEL": str(model)}
    loaded, written = modules_after(*[names.get(word, word) for word in words.split()])
    assert not loaded & {"torch", "onnxruntime", "transformers"}
    assert message in " ".join(written.split())


def modules_after(*arguments: object, code: int | None = 2) -> tuple[set[str], str]:
    """Return the modules that a refused command has imported, and its message."""
    done = cold.zoo_again(*arguments)
    assert done.returncode and code in (None, done.returncode), done.stderr
    return done.modules, done.stderr


def test_columns_of_any_name(model: Model, tables: tuple[Path, Path]) -> None:
    corpus, queries = tables
    words: list[Any] = ["run", "search", model.checkpoint.path, "--backend", "cpu", "--top-k", "3"]
    words += ["--corpus", corpus, "--corpus-text", "body", "--queries", queries]
    for flag in ("--query-text", "--text"):
        done = warm.zoo(*words, flag, "question")
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        best = [[match["corpus_id"] for match in answer["results"]] for answer in answers]
        assert best == nearest(model, 3)
        for answer in answers:
            for match in answer["results"]:
                assert TEXTS[match["corpus_id"]] in match.values()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--queries QUERIES --query-text question",
            "search needs texts to search; give --corpus FILE, or --index FILE",
        ),
        ("--corpus CORPUS --corpus-text body", "no text to work on"),
        (
            "--corpus CORPUS --queries QUERIES --query-text question",
            "articles.csv has the columns id, title, body, and it is unclear which to read; name "
            "them with --corpus-text",
        ),
        (
            "--corpus CORPUS --corpus-text text --queries QUERIES --query-text question",
            "articles.csv:1 has no column 'text'; there are id, title, body",
        ),
        (
            "--corpus CORPUS --corpus-text body --queries QUERIES",
            "questions.jsonl:1 has no text; its keys are 'number', 'question'; name one with "
            "--query-text",
        ),
        (
            "--corpus CORPUS --corpus-text body --queries QUERIES --query-text questions",
            "questions.jsonl:1 has no questions; did you mean question? Its keys are 'number', ",
        ),
    ],
)
def test_mistakes_are_one_line_before_torch_is_loaded(
    hub_checkpoint: Make, tables: tuple[Path, Path], tmp_path: Path, options: str, message: str
) -> None:
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    corpus, queries = tables
    files = {"CORPUS": str(corpus), "QUERIES": str(queries)}
    words = [files.get(word, word) for word in options.split()]
    loaded, written = modules_after("run", "search", model, *words)
    assert not loaded & {"torch", "onnxruntime", "transformers"}
    (line,) = [line for line in " ".join(written.split()).split("error: ") if line]
    assert message in line
