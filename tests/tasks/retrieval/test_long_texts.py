"""``zoo run search`` over a corpus of long texts: windows and passages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import warm
from tests.finetuning.making import write_table
from tests.inference.conftest import Small
from tests.tasks.reranker.test_long_texts import (
    LENGTH,
    POOLINGS,
    QUERY,
    READING,
    STRIDE,
    TEXTS,
    cosines,
)
from zoo.api import Model
from zoo.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")


def write_corpus(folder: Path) -> Path:
    rows = [{"body": text, "number": 10 + k} for k, text in enumerate(TEXTS)]
    return write_table(folder / "corpus.jsonl", rows)


def search(model: Model, *words: object) -> tuple[list[dict[str, Any]], str]:
    """Return the best texts of the query, and what the command wrote to standard error."""
    done = warm.zoo("run", "search", model.checkpoint.path, "--backend", "cpu", QUERY, *words)
    assert done.returncode == 0, done.stderr
    (answer,) = [json.loads(line) for line in done.stdout.splitlines()]
    return answer["results"], done.stderr


def test_windows_score_their_text_together(small: Small, tmp_path: Path) -> None:
    model, source = small("BertModel")
    corpus = write_corpus(tmp_path)
    window_scores = cosines(source)
    for pooling, pool in POOLINGS.items():
        expected = [float(pool(scores)) for scores in window_scores]
        reading: Any = {**READING, "window_pooling": pooling}
        matches = model.search(QUERY, TEXTS, **reading)[0]["results"]
        scores = {match["corpus_id"]: match["score"] for match in matches}
        assert scores == pytest.approx(dict(enumerate(expected)), abs=1e-5)
        best_first = np.argsort(-np.array(expected), kind="stable").tolist()
        assert [match["corpus_id"] for match in matches] == best_first
        if pooling == "first":
            continue  # A part of the long texts is not read.
        flags = ["--max-seq-len", LENGTH, "--doc-stride", STRIDE, "--window-pooling", pooling]
        found, written = search(
            model, "--corpus", corpus, "--corpus-text", "body", "--top-k", 2, *flags
        )
        assert [match["number"] for match in found] == [10 + k for k in best_first[:2]]
        assert "longer than" not in written
    for match in model.search(QUERY, TEXTS, **READING)[0]["results"]:
        number = match["corpus_id"]
        # A letter is a token, and the next one begins two characters later.
        start = 2 * (LENGTH - 2 - STRIDE) * int(np.argmax(window_scores[number]))
        end = min(start + 2 * (LENGTH - 2) - 1, len(TEXTS[number]))
        assert match["window"] == [start, end]


def test_passages_have_their_document_and_offsets(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertModel")
    corpus = write_corpus(tmp_path)
    passages = model.run("embed", TEXTS, chunks="tokens", chunk_size=4)
    vectors = np.array([row["embedding"] for row in passages])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = model.embed(QUERY)
    scores = vectors @ query / np.linalg.norm(query)
    order = np.argsort(-scores, kind="stable")[:3].tolist()
    flags = ["--chunks", "tokens", "--chunk-size", 4, "--top-k", 3]
    found, _ = search(model, "--corpus", corpus, "--corpus-text", "body", *flags)
    assert [match["corpus_id"] for match in found] == order
    for match, number in zip(found, order, strict=True):
        text = TEXTS[match["document"]]
        assert match["body"] == text[match["start"] : match["end"]] == passages[number]["text"]
        assert match["number"] == 10 + match["document"]
        assert match["score"] == pytest.approx(scores[number], abs=1e-5)
    options: Any = {"chunks": "tokens", "chunk_size": 4, "top_k": 3}
    (late,) = model.search(QUERY, TEXTS, late_chunking=True, **options)
    assert [match["score"] for match in late["results"]] != [match["score"] for match in found]


def test_cut_texts_are_counted_with_a_remedy(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertModel")
    corpus = write_corpus(tmp_path)
    _, written = search(model, "--corpus", corpus, "--corpus-text", "body", "--max-seq-len", 11)
    line = written.splitlines()[-1]
    assert "2 of 4 texts were longer than 11 tokens and were cut; --doc-stride 2 reads" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_pooling": "max"}, "--window-pooling is for texts that are read in windows"),
        ({"chunk_size": 4}, "--chunk-size is for passages"),
        ({"chunks": "tokens", "doc_stride": 2}, "passages of --chunks fit into the model"),
        ({"doc_stride": 11, "max_seq_len": 11}, "windows of 11 tokens cannot share 11"),
        (
            {"doc_stride": 2, "index": "vectors.npy", "corpus": None},
            "--doc-stride says how texts of --corpus are read",
        ),
    ],
)
def test_mistakes(
    small: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    message: str,
) -> None:
    model, _ = small("BertModel")
    monkeypatch.chdir(tmp_path)
    np.save("vectors.npy", np.ones((1, 32), np.float32))
    with pytest.raises(UsageError, match=message):
        model.search(QUERY, **{"corpus": TEXTS, **options})
