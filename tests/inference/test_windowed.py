"""Long texts in windows and passages: vectors by torch on windows of transformers' tokenizer."""

import csv
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests import warm
from tests.checkpoints import Make, hub_checkpoint
from tests.inference.conftest import Small, converted
from zoo.api import Model
from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.inference.embed import Embed
from zoo.inference.processing.records import as_records
from zoo.inference.processing.windows import pool_scores

__all__ = ["hub_checkpoint"]
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
WORDS = ["river", "rose", "slowly", "nobody", "old", "mill", "noticed", "until", "evening"]
SENTENCES = []
for number in range(30):
    words = " ".join(WORDS[number % 5 :])
    SENTENCES.append(f"{WORDS[number % 9].title()} {words} {number}.")
LONG = " ".join(SENTENCES)
LENGTH, STRIDE = 64, 16


@pytest.fixture(scope="module")
def reference(packaged: Path) -> Any:
    """Tokenizer and network of transformers."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(packaged)
    return tokenizer, transformers.AutoModel.from_pretrained(packaged).eval()


def hidden_states(network: Any, ids: list[int]) -> Tensor:
    """Return the vectors of the tokens of one text, (tokens, width)."""
    with torch.inference_mode():
        states: Tensor = network(input_ids=torch.tensor([ids])).last_hidden_state[0]
    return states


def window_vectors(reference: Any, text: str) -> tuple[Tensor, Tensor]:
    """Return the embedding of each window of a text, and its number of tokens of the text."""
    tokenizer, network = reference
    windows = tokenizer(
        text, truncation=True, max_length=LENGTH, stride=STRIDE, return_overflowing_tokens=True
    )["input_ids"]
    vectors = []
    for ids in windows:
        vectors.append(F.normalize(hidden_states(network, ids).mean(0), dim=0))
    return torch.stack(vectors), torch.tensor([float(len(ids) - 2) for ids in windows])


def test_vectors_of_windows_are_pooled(encoder: Model, reference: Any) -> None:
    vectors, counts = window_vectors(reference, LONG)
    assert len(vectors) > 4 and counts[-1] < counts[0]
    mean = F.normalize((vectors * counts[:, None]).sum(0) / counts.sum(), dim=0)
    expected = {
        None: mean,
        "mean": mean,
        "max": F.normalize(vectors.amax(0), dim=0),
        "first": vectors[0],
    }
    options: Any = {"doc_stride": STRIDE, "max_seq_len": LENGTH}
    for pooling, vector in expected.items():
        pooled: Any = {**options, "window_pooling": pooling}
        embedded = encoder.embed([LONG, SENTENCES[0]], **pooled)
        np.testing.assert_allclose(embedded[0], vector, atol=1e-5)
        # A short text is one window, and the same as without windows.
        np.testing.assert_allclose(embedded[1], encoder.embed(SENTENCES[0]), atol=1e-6)
    pair_options: Any = {"doc_stride": STRIDE, "max_seq_len": LENGTH}
    (similarity,) = encoder.run("similarity", [(SENTENCES[0], LONG)], **pair_options)
    cosine = float(encoder.embed(SENTENCES[0]) @ mean.numpy())
    assert similarity["similarity"] == pytest.approx(cosine, abs=1e-5)


def test_each_window_has_the_prompt(encoder: Model, reference: Any) -> None:
    tokenizer, network = reference
    prompt = tokenizer.tokenize("search text: ")
    tokens = tokenizer.tokenize(LONG)
    room = LENGTH - 2 - len(prompt)
    vectors = []
    counts = []
    for start in range(0, len(tokens), room - STRIDE):
        part = tokens[start : start + room]
        ids = tokenizer.convert_tokens_to_ids(["[CLS]", *prompt, *part, "[SEP]"])
        vectors.append(F.normalize(hidden_states(network, ids).mean(0), dim=0))
        counts.append(float(len(part)))
        if start + room >= len(tokens):
            break
    weights = torch.tensor(counts)[:, None]
    expected = F.normalize((torch.stack(vectors) * weights).sum(0), dim=0)
    options: Any = {"prompt": "search text: ", "doc_stride": STRIDE, "max_seq_len": LENGTH}
    np.testing.assert_allclose(encoder.embed(LONG, **options), expected, atol=1e-5)
    (result,) = encoder.run("embed", [LONG], **options)
    spans = result["windows"]
    assert spans[0][0] == 0 and spans[-1][1] == len(LONG) and len(spans) == len(vectors)
    for (_, end), (start, _) in pairwise(spans):
        assert len(tokenizer.tokenize(LONG[start:end])) == STRIDE


def late_vectors(reference: Any, text: str, spans: list[tuple[int, int]]) -> Tensor:
    """Return vectors of passages from one pass, or windows whose later tokens are context."""
    tokenizer, network = reference
    encoded = tokenizer(
        text,
        truncation=True,
        max_length=LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    states = list[Tensor]()
    starts = list[int]()
    last = len(encoded["input_ids"]) - 1
    windows = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    for number, (ids, offsets) in enumerate(windows):
        hidden = hidden_states(network, ids)
        # Without the special tokens inside of the text, and the tokens of the previous window.
        first = 0 if number == 0 else 1 + STRIDE
        stop = len(ids) if number == last else len(ids) - 1
        states.append(hidden[first:stop])
        starts += [start for start, _ in offsets[first:stop]]
    starts[0] = -1
    starts[-1] = len(text)
    joined = torch.cat(states)
    vectors = []
    for number, (start, end) in enumerate(spans):
        begin = -1 if number == 0 else start
        finish = len(text) + 1 if number == len(spans) - 1 else end
        inside = torch.tensor([begin <= place < finish for place in starts])
        vectors.append(F.normalize(joined[inside].mean(0), dim=0))
    return torch.stack(vectors)


@pytest.mark.parametrize("count", [5, 30], ids=["one pass", "windows"])
def test_late_chunking_pools_tokens_of_the_whole_text(
    encoder: Model, reference: Any, count: int
) -> None:
    text = " ".join(SENTENCES[:count])
    options: Any = {"chunks": "sentences", "max_seq_len": LENGTH}
    late: Any = {**options, "late_chunking": True, "doc_stride": STRIDE}
    results = encoder.run("embed", [text, "One. Two."], **late)
    *passages, first, second = results
    assert [passage["text"] for passage in passages] == SENTENCES[:count]
    spans = [(passage["start"], passage["end"]) for passage in passages]
    expected = late_vectors(reference, text, spans)
    vectors = np.array([passage["embedding"] for passage in passages])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert (first["document"], second["document"]) == (1, 1)
    assert (second["text"], second["start"], second["end"]) == ("Two.", 5, 9)
    alone = encoder.embed(SENTENCES[:count], max_seq_len=LENGTH)
    np.testing.assert_allclose(encoder.embed(text, **options), alone, atol=1e-6)
    assert np.abs(vectors - alone).max() > 0.01, "the text around a passage matters"
    # The vector of the only passage is the text's.
    (whole,) = encoder.embed(["One two."], chunks="sentences", late_chunking=True)
    np.testing.assert_allclose(whole, encoder.embed("One two."), atol=1e-6)


def test_scores_of_windows() -> None:
    scores = np.array([3.0, 1.0, 5.0, 2.0, 7.0])
    starts = np.array([0, 1, 4])
    assert pool_scores(scores, starts, "max").tolist() == [3, 5, 7]
    assert pool_scores(scores, starts, "first").tolist() == [3, 1, 7]
    assert pool_scores(scores, starts, "mean").tolist() == pytest.approx([3, 8 / 3, 7])


def test_rows_of_passages_are_an_index(small: Small, tmp_path: Path) -> None:
    """Rows name document and offsets in each format, and a search finds them."""
    import pyarrow.parquet

    model, _ = small("BertModel")
    texts = ["a b c. d e f. a a a", "b", "c d e f a b c d e f a b c d e f " * 4]
    source = tmp_path / "documents.jsonl"
    rows = [{"id": f"d{k}", "body": text} for k, text in enumerate(texts)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options: Any = {"text": "body", "chunks": "tokens", "chunk_size": 5}
    tables = {}
    for ending in ("jsonl", "csv", "parquet"):
        tables[ending] = tmp_path / f"rows.{ending}"
        model.run_table("embed", source, tables[ending], **options)
    columns = ["id", "body", "document", "start", "end"]
    lines = [json.loads(line) for line in tables["jsonl"].read_text().splitlines()]
    listed = [{name: line[name] for name in columns} for line in lines]
    assert len(lines) > 15
    for row in listed:
        assert row["body"] == texts[row["document"]][row["start"] : row["end"]]
        assert row["id"] == f"d{row['document']}"
    parquet = pyarrow.parquet.read_table(tables["parquet"], columns=columns).to_pylist()
    assert parquet == listed
    with tables["csv"].open(newline="") as file:
        cells = [{name: row[name] for name in columns} for row in csv.DictReader(file)]
    assert cells == [{name: str(value) for name, value in row.items()} for row in listed]
    (found,) = model.search(["d e f ."], index=tables["parquet"], top_k=1)
    (best,) = found["results"]
    assert best["body"] == texts[best["document"]][best["start"] : best["end"]]
    with pytest.raises(UsageError, match="has the key 'start', which --chunks writes itself"):
        source.write_text('{"text": "a", "start": 1}\n')
        model.run_table("embed", source, tmp_path / "x.jsonl", chunks="tokens")


@pytest.mark.parametrize("late", [False, True], ids=["passages", "late"])
def test_passages_are_continued_in_the_middle_of_a_document(small: Small, late: bool) -> None:
    model, _ = small("BertModel")
    task = Embed(model.checkpoint, model.session, chunks="tokens", chunk_size=4, late_chunking=late)
    texts = ["a b c d e f " * 9, "a b", "c d e f a b " * 3]
    results = list(task.run(as_records(texts)))
    passages = list(task.split_records(as_records(texts)))
    assert len(results) == len(passages) == 14 + 1 + 5
    remaining = list[Any]()
    for chunk in task.run_chunks(iter(passages[6:]), start=6):
        remaining += chunk
    assert [row["text"] for row in remaining] == [row["text"] for row in results[6:]]
    for row, result in zip(remaining, results[6:], strict=True):
        np.testing.assert_allclose(row["embedding"], result["embedding"], atol=1e-5)


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"doc_stride": -1}, "windows cannot share -1 tokens"),
    ({"window_pooling": "max"}, "--window-pooling is for texts that are read in windows"),
    ({"doc_stride": 1, "window_pooling": "sum"}, "not pooled by 'sum'"),
    ({"chunk_size": 3}, "--chunk-size is for passages"),
    ({"late_chunking": True}, "--late-chunking is for passages"),
    ({"chunks": "tokens", "chunk_size": 39}, "39 tokens is longer than the 38"),
    ({"chunks": "tokens", "doc_stride": 1}, "passages of --chunks fit into the model"),
    ({"chunks": "tokens", "window_pooling": "max"}, "--window-pooling one for a text"),
]


def test_refusals(small: Small, hub_checkpoint: Make, tmp_path: Path) -> None:
    model, _ = small("BertModel")
    for options, message in REFUSALS:
        with pytest.raises(UsageError, match=message):
            Embed(model.checkpoint, model.session, **options)
    path = str(model.checkpoint.path)
    done = warm.zoo("run", "embed", path, "a b", "--doc-stride", "40", "--backend", "cpu")
    assert done.returncode == 2 and not done.stdout, done.stderr
    assert "windows of 40 tokens cannot share 40; lower --doc-stride" in done.stderr
    with_cls = converted_with_pooling(hub_checkpoint, tmp_path, "cls")
    with pytest.raises(UsageError, match="reads the vector of one token of a text"):
        Embed(with_cls, model.session, chunks="tokens", late_chunking=True)


def converted_with_pooling(make: Make, tmp_path: Path, mode: str) -> Checkpoint:
    """Return a checkpoint of a sentence encoder that pools tokens in a way."""
    source = make("BertModel")
    (source / "modules.json").write_text(
        json.dumps(
            [
                {
                    "idx": 0,
                    "name": "0",
                    "path": "",
                    "type": "sentence_transformers.models.Transformer",
                },
                {
                    "idx": 1,
                    "name": "1",
                    "path": "1_Pooling",
                    "type": "sentence_transformers.models.Pooling",
                },
            ]
        )
    )
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, "pooling_mode": mode})
    )
    return converted(source, tmp_path / "pooled")
