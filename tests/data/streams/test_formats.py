"""Shards of each format: their documents, in order, from each row on."""

import io
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
import zstandard

from tests.data.streams.making import (
    documents,
    write_dataset,
    write_json_lines,
    write_mds,
    write_parquet,
    write_tar,
)
from zoo.data.cache import cached_corpus
from zoo.data.readers.documents import ReaderConfig
from zoo.data.streams.source import StreamSource
from zoo.data.tokenizer import TokenizerToTrain
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.limits import MAX_ROW_BYTES
from zoo.plugins import get_family

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
    "Parquet": lambda folder, texts: write_parquet(folder / "rows.parquet", texts),
    "folder of datasets": write_dataset,
    "tar": lambda folder, texts: write_tar(folder / "rows.tar", texts),
    "tar with JSON": lambda folder, texts: write_tar(folder / "rows.tar", texts, "json"),
    "tar, gzip": lambda folder, texts: write_tar(folder / "rows.tar.gz", texts),
    "tar, tgz": lambda folder, texts: write_tar(folder / "rows.tgz", texts),
    "tar, zstd": lambda folder, texts: write_tar(folder / "rows.tar.zst", texts),
    "MDS": write_mds,
    "MDS, zstd": lambda folder, texts: write_mds(folder, texts, compressed=True),
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


@pytest.mark.by_default("JSON lines", "Parquet", "tar", "zstd")
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


def cut(path: Path, share: float) -> Path:
    """Leave only the first bytes of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rows.parquet", "rows.parquet is not a Parquet file"),
        ("rows.tar", r"rows.tar is .*\(after row \d+\)|rows.tar, row \d+"),
        ("rows.tar.gz", r"rows.tar.gz is damaged: .*\(after row \d+\)"),
        ("rows.tar.zst", r"rows.tar.zst is damaged: .*\(after row \d+\)"),
        ("data-00001-of-00002.arrow", "data-00001-of-00002.arrow is damaged"),
        ("shard.00001.mds", r"shard.00001.mds has [\d,]+ bytes, and index.json says [\d,]+"),
    ],
)
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_half_a_file_is_named(name: str, message: str, share: float, tmp_path: Path) -> None:
    writers: dict[str, Writer] = {
        ".parquet": WRITERS["Parquet"],
        ".tar": WRITERS["tar"],
        ".gz": WRITERS["tar, gzip"],
        ".zst": WRITERS["tar, zstd"],
        ".arrow": WRITERS["folder of datasets"],
        ".mds": WRITERS["MDS"],
    }
    writers[Path(name).suffix](tmp_path, TEXTS)
    cut(tmp_path / name, share)
    with pytest.raises(VerificationError, match=message):
        open_source(tmp_path).hold_out(1000)


@pytest.mark.parametrize("blocks", range(1, 22))
def test_a_tar_file_that_is_cut_anywhere_is_an_error(blocks: int, tmp_path: Path) -> None:
    """Also between members, which tarfile takes for the end."""
    path = write_tar(tmp_path / "rows.tar", TEXTS[:5])
    path.write_bytes(path.read_bytes()[: 512 * blocks])
    with pytest.raises(VerificationError, match=r"rows.tar"):
        open_source(path).hold_out(1000)


def test_the_library_datasets_writes_what_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"id": list(range(len(TEXTS))), "text": TEXTS})
    data.save_to_disk(str(tmp_path / "one"), num_shards=2)
    held_out, _ = open_source(tmp_path / "one").hold_out(len(TEXTS) - 1)
    assert held_out == TEXTS[:-1]
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(UsageError, match="two holds the splits train, test; name one"):
        open_source(tmp_path / "two")


def test_shards_with_other_columns_are_named(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", TEXTS)
    other = pyarrow.table({"id": [1], "body": ["some text"]})
    pyarrow.parquet.write_table(other, tmp_path / "b.parquet")
    with pytest.raises(UsageError) as caught:
        open_source(tmp_path)
    assert "b.parquet has no field 'text'; it has id, body; --text names it" in str(caught.value)
    numbers = pyarrow.table({"id": [1], "text": [2]})
    pyarrow.parquet.write_table(numbers, tmp_path / "b.parquet")
    with pytest.raises(VerificationError, match=r"b.parquet, row 1: 'text' is not a string"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["1"], "text": ["a"]}, "the column 'id' of .*00001.* is string, and in .* int64"),
        ({"text": ["a"]}, "00001-of-00002.arrow has no column 'id', and in .* it is int64"),
        ({"id": [1], "text": ["a"], "url": ["b"]}, "'url' of .* string, and .* does not have it"),
    ],
)
def test_a_folder_of_datasets_has_equal_columns(
    columns: dict[str, list[Any]], message: str, tmp_path: Path
) -> None:
    write_dataset(tmp_path, TEXTS)
    rows = pyarrow.table(columns)
    with pyarrow.ipc.new_stream(str(tmp_path / "data-00001-of-00002.arrow"), rows.schema) as file:
        file.write_table(rows)
    with pytest.raises(VerificationError, match=message):
        open_source(tmp_path)


def test_a_shard_of_mds_takes_its_index(tmp_path: Path) -> None:
    write_mds(tmp_path, TEXTS)
    with pytest.raises(UsageError, match=r"is a shard of MDS; name its folder"):
        open_source(tmp_path / "shard.00000.mds")
    (tmp_path / "shard.00001.mds").unlink()
    with pytest.raises(SourceError, match=r"shard.00001.mds does not exist, and .*index.json"):
        open_source(tmp_path)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_shard_of_mds_has_the_digests_of_its_index(compressed: bool, tmp_path: Path) -> None:
    """A changed letter, which is text as before."""
    write_mds(tmp_path, TEXTS, compressed=compressed)
    file = next(tmp_path.glob("shard.00000.mds*"))
    content = file.read_bytes()
    text = zstandard.decompress(content) if compressed else content
    text = text.replace(b"mice", b"rats", 1)
    changed = zstandard.compress(text, 1) if compressed else text
    index = (tmp_path / "index.json").read_text()
    index = index.replace(f'"bytes": {len(content)},', f'"bytes": {len(changed)},')
    (tmp_path / "index.json").write_text(index)
    file.write_bytes(changed)
    with pytest.raises(VerificationError, match=r"is damaged: its sha1 is not the one in index"):
        open_source(tmp_path).hold_out(1)


def test_a_tar_without_texts_names_its_members(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "rows.tar", TEXTS, "caption")
    with pytest.raises(UsageError, match=r"row 1 has no member 'text'; it has id, caption"):
        open_source(path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", TEXTS, field="content")
    with pytest.raises(UsageError) as caught:
        open_source(path).hold_out(1)
    assert "line 1 has no field 'text'; it has id, content; --text names it" in str(caught.value)


@pytest.mark.parametrize("type_of_member", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_long_description_of_a_member_is_not_read(type_of_member: bytes, tmp_path: Path) -> None:
    """It would be in memory as a whole, before the size of the member is checked."""
    path = tmp_path / "rows.tar"
    member = tarfile.TarInfo("long")
    member.type = type_of_member
    member.size = 40 << 20
    header = member.tobuf(tarfile.USTAR_FORMAT)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + member.size)  # A hole, which takes no room.
    tracemalloc.start()
    with pytest.raises(VerificationError, match=r"fields of a member have 41,943,040 bytes"):
        open_source(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_large_member_is_refused_and_one_that_is_not_text_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "rows.tar"
    with tarfile.open(path, "w") as archive:
        for suffix in ("jpg", "txt"):
            member = tarfile.TarInfo(f"a.{suffix}")
            member.size = MAX_ROW_BYTES + 1
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(VerificationError, match=r"row 1: size of a\.txt in bytes is 33,554,433"):
        open_source(path)


PEAK_PROGRAM = """
import re, sys
from pathlib import Path
from zoo.data.corpus import Corpus
from zoo.data.encoding import DocumentTokenizer
from zoo.data.readers.documents import ReaderConfig
from zoo.data.streams.blocks import BlockReader, BlockSize, Position
from zoo.data.streams.source import StreamSource

file, corpus_path = sys.argv[1:]
corpus = Corpus(Path(corpus_path))
tokenizer = DocumentTokenizer(corpus.tokenizer_json, corpus.record.tokenizer, "rule", "uint16")
source = StreamSource.open([file], ReaderConfig(), lanes=2, seed=0)
reader = BlockReader(source, tokenizer, BlockSize(100, 10_000, 100_000))
for lane in range(source.lanes):
    position = Position()
    while position.epoch == 0:
        position = reader.read(lane, position).end
# The peak of getrusage would include that of the process that started this one.
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.tar"])
def test_memory_does_not_grow_with_the_file(name: str, tmp_path: Path) -> None:
    trained = TokenizerToTrain.for_family(get_family("gpt"), vocab_size=400)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXTS), encoding="utf-8")
    corpus = cached_corpus([text], trained, eval_fraction=0)
    writer = write_tar if name.endswith(".tar") else write_json_lines
    peaks = []
    for count in (1000, 20_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        # The files have 1.3 and 26 MB.
        path = writer(folder / name, [text * 20 for text in documents(count)])
        command = [sys.executable, "-c", PEAK_PROGRAM, str(path), str(corpus.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] < peaks[0] + 12, peaks
