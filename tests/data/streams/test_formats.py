"""Shards of each format: their documents, in order, from each row on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.streams.making import documents, write_json_lines
from zoo.data.readers.documents import ReaderConfig
from zoo.data.streams.source import StreamSource
from zoo.errors import UsageError, VerificationError

Writer = Callable[[Path, list[str]], Path]
TEXTS = documents(150)


def write_lines(suffix: str) -> Writer:
    return lambda folder, texts: write_json_lines(folder / f"rows.jsonl{suffix}", texts)


def write_text(folder: Path, texts: list[str]) -> Path:
    path = folder / "rows.txt"
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


WRITERS: dict[str, Writer] = {
    "JSON lines": write_lines(""),
    "gzip": write_lines(".gz"),
    "zstd": write_lines(".zst"),
    "text": write_text,
}


def open_source(path: Path, lanes: int = 2) -> StreamSource:
    return StreamSource.open([path], ReaderConfig(), lanes=lanes, seed=0)


@pytest.fixture(params=WRITERS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> StreamSource:
    WRITERS[request.param](tmp_path, TEXTS)
    return open_source(tmp_path)


def test_segments_have_each_document_once(source: StreamSource) -> None:
    texts: list[str] = []
    for segment in source.segments:
        shard = source.shards[segment.shard]
        rows = shard.rows(segment, segment.start_row, segment.start_offset, source.reader)
        texts.extend(row.text for row in rows)
    assert texts == TEXTS


def test_a_segment_is_read_from_each_row_on(source: StreamSource) -> None:
    segment = source.segments[-1]
    shard = source.shards[segment.shard]
    rows = list(shard.rows(segment, segment.start_row, segment.start_offset, source.reader))
    for number in range(0, len(rows), 7):
        row = rows[number]
        later_rows = shard.rows(segment, row.next_row, row.next_offset, source.reader)
        assert list(later_rows) == rows[number + 1 :]


def test_held_out_documents_are_the_first_ones(source: StreamSource) -> None:
    held_out, remaining_source = source.hold_out(30)
    assert held_out == TEXTS[:30]
    texts: list[str] = []
    for segment in remaining_source.segments:
        shard = source.shards[segment.shard]
        rows = shard.rows(segment, segment.start_row, segment.start_offset, source.reader)
        texts.extend(row.text for row in rows)
    assert texts == TEXTS[30:]


def test_json_lines_are_cut_between_lines(tmp_path: Path) -> None:
    source = open_source(write_json_lines(tmp_path / "rows.jsonl", documents(2000)), lanes=8)
    assert len(source.segments) > 8
    assert source.lanes == 8


def test_more_documents_are_held_out_than_there_are(source: StreamSource) -> None:
    with pytest.raises(UsageError, match="1,000 documents are held out, and there are 150"):
        source.hold_out(1000)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", TEXTS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(VerificationError, match=r"rows.jsonl, line 150 is not JSON"):
        open_source(path).hold_out(1000)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_half_a_shard_is_named_with_its_row(suffix: str, tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / f"rows.jsonl{suffix}", documents(3000))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(VerificationError, match=r"rows.jsonl.* is damaged: .*\(after row \d"):
        open_source(path).hold_out(3000)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", TEXTS, field="content")
    with pytest.raises(UsageError) as caught:
        open_source(path).hold_out(1)
    assert "line 1 has no field 'text'; it has id, content; --text names it" in str(caught.value)
