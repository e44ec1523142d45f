"""The stream of shuffled documents, in memory and in the cache."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data import document_stream
from zoo.data.corpus import Split
from zoo.data.document_stream import DocumentStream, document_order
from zoo.data.order import DataOrder

GAP = -1


def split_of(lengths: Sequence[int], order: DataOrder = "keyed", key: str = "") -> Split:
    """Return documents of distinct tokens, in sentences of up to three tokens."""
    documents = []
    token = 0
    for length in lengths:
        tokens = list(range(token, token + length))
        documents.append([tokens[at : at + 3] for at in range(0, length, 3)])
        token += length
    split = Split.from_documents(documents)
    split.order = order
    split.key = key
    return split


def written_out(split: Split, seed: int, gap: int) -> list[int]:
    """Return the stream token by token, with ``GAP`` in the gaps, by a plain loop."""
    stream = []
    order = document_order(split, seed)
    for index in range(len(order)):
        start, end = split.document_span(order[index])
        if start < end:
            stream += [*split.read(start, end).tolist(), *[GAP] * gap]
    return stream[: len(stream) - gap]


lengths_of_documents = st.lists(st.integers(0, 12), min_size=1, max_size=40).filter(any)


@settings(deadline=None)
@given(
    lengths=lengths_of_documents,
    gap=st.integers(0, 3),
    seed=st.integers(0, 99),
    kind=st.sampled_from(["keyed", "arrays"]),
    data=st.data(),
)
def test_stretches_are_those_of_a_plain_loop(
    lengths: list[int], gap: int, seed: int, kind: DataOrder, data: Any
) -> None:
    split = split_of(lengths, kind)
    expected = written_out(split, seed, gap)
    stream = DocumentStream(split, seed, gap)
    assert len(stream) == len(expected)
    start = data.draw(st.integers(0, len(expected)))
    end = data.draw(st.integers(start, len(expected)))
    pieces = [GAP] * (end - start)
    for place, first, last in stream.pieces(start, end):
        assert first < last
        pieces[place - start : place - start + last - first] = split.read(first, last).tolist()
    assert pieces == expected[start:end]


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    split = split_of([3, 0, 8, 1, 1, 7, 20, 2])
    expected = DocumentStream(split, 0, 2).spans(0, 40)
    monkeypatch.setattr(document_stream, "BLOCK_DOCUMENTS", 3)
    assert DocumentStream(split, 0, 2).spans(0, 40) == expected


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let all sums be cached, and return the directory of the cache."""
    monkeypatch.setattr(document_stream, "CACHED_DOCUMENTS", 0)
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    return tmp_path / "rows"


def plans(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/ends.npy"))


def test_sums_are_written_once(cached: Path) -> None:
    split = split_of([5, 9, 2, 14], key="digest")
    expected = DocumentStream(split_of([5, 9, 2, 14]), 0).spans(0, 30)
    assert not cached.exists(), "splits in memory are not cached"
    assert DocumentStream(split, 0).spans(0, 30) == expected
    (path,) = plans(cached)
    written = path.stat()
    assert DocumentStream(split, 0).spans(0, 30) == expected
    assert path.stat().st_mtime_ns == written.st_mtime_ns
    assert path.stat().st_ino == written.st_ino


def test_all_that_the_sums_depend_on_is_in_their_name(cached: Path) -> None:
    lengths = [5, 9, 2, 14]
    DocumentStream(split_of(lengths, key="digest"), 0)
    DocumentStream(split_of(lengths, key="digest"), 1)
    DocumentStream(split_of(lengths, key="digest"), 0, gap=2)
    DocumentStream(split_of(lengths, key="another"), 0)
    DocumentStream(split_of(lengths, "arrays", key="digest"), 0)
    assert len(plans(cached)) == 5


def test_damaged_sums_are_written_again(cached: Path) -> None:
    split = split_of([5, 9, 2, 14], key="digest")
    expected = DocumentStream(split, 0).spans(0, 30)
    (path,) = plans(cached)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert DocumentStream(split, 0).spans(0, 30) == expected
    assert path.read_bytes() != bytes(content)


def test_without_a_cache_the_sums_are_in_memory(
    cached: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = DocumentStream(split_of([5, 9, 2, 14]), 0).spans(0, 30)
    (cached.parent / "file").write_bytes(b"")
    monkeypatch.setenv("ZOO_HOME", str(cached.parent / "file"))
    split = split_of([5, 9, 2, 14], key="digest")
    assert DocumentStream(split, 0).spans(0, 30) == expected
    assert "rows are built again at every start" in caplog.text


PROGRAM = """
import sys
from zoo.data import document_stream
from tests.data.test_document_stream import split_of
document_stream.CACHED_DOCUMENTS = 0
stream = document_stream.DocumentStream(split_of([5, 9, 2, 14] * 50, key="digest"), 0)
print(stream.spans(0, len(stream)))
"""


@pytest.mark.long
def test_processes_that_start_together_make_one_plan(cached: Path) -> None:
    """Four processes have the same spans, and one of them wrote the sums."""
    command = [sys.executable, "-c", PROGRAM]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert outputs[0].startswith("[(")
    assert outputs == [outputs[0]] * 4
    assert len(plans(cached)) == 1
