"""Readers of text files in all formats, and sentence splitting."""

import gzip
import json
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from zoo.data.readers.documents import ReaderConfig, expand_paths, read_documents
from zoo.data.sentences import sentence_spans
from zoo.errors import UsageError

TEXTS = ["One sentence.\nAnd two: é.", "A second document…", "中文 and no more"]
PLAIN = "\n\n".join(TEXTS).encode() + b"\n"
ROWS = b"".join(json.dumps({"n": 1, "text": text}).encode() + b"\n" for text in TEXTS)


def read(*paths: Path, **options: str) -> list[str]:
    return list(read_documents(expand_paths(paths), ReaderConfig(**options)))  # type: ignore[arg-type]


def frames(data: bytes) -> bytes:
    """Return two concatenated frames, as parallel compressors write them."""
    half = len(data) // 2
    return zstandard.compress(data[:half]) + zstandard.compress(data[half:])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", PLAIN),
        ("noend", PLAIN),
        ("a.txt.gz", gzip.compress(PLAIN, mtime=0)),
        ("a.txt.zst", frames(PLAIN)),
        ("a.jsonl", ROWS),
        ("a.json", ROWS.replace(b"\n", b"\n\n")),
        ("a.ndjson.gz", gzip.compress(ROWS, mtime=0)),
        ("A.JSONL.ZST", frames(ROWS)),
        ("crlf.txt", PLAIN.replace(b"\n", b"\r\n")),
        ("mac.txt", PLAIN.replace(b"\n", b"\r")),
        ("mark.txt", b"\xef\xbb\xbf" + PLAIN),
        ("space.txt", b" \n\n\t" + PLAIN.replace(b"\n\n", b" \n\n \n ") + b"\n\n\n"),
    ],
)
def test_the_same_texts_come_out_of_every_kind(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name) == TEXTS


def test_parquet(tmp_path: Path) -> None:
    table = pyarrow.table({"n": [1] * 900, "body": TEXTS * 300})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    assert read(tmp_path / "a.parquet", text_field="body") == TEXTS * 300


QUOTED = "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS))


@pytest.mark.parametrize(
    ("name", "content", "column"),
    [
        ("a.csv", f"n,text\n{QUOTED}".encode(), "text"),
        ("mark.CSV", b"\xef\xbb\xbf" + f"n,body\r\n{QUOTED}".encode(), "body"),
        ("a.csv.gz", gzip.compress(f"n,text\n{QUOTED}".encode(), mtime=0), "text"),
        ("bare.csv", QUOTED.encode(), "2"),
    ],
)
def test_a_row_of_a_table_is_a_document(
    tmp_path: Path, name: str, content: bytes, column: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name, text_field=column) == TEXTS


def test_a_table_without_the_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("review\tlabel\ngood\tyes\n")
    with pytest.raises(UsageError, match=r"a\.tsv has no field 'text'.*review, label.*--text"):
        read(tmp_path / "a.tsv")
    assert read(tmp_path / "a.tsv", text_field="review") == ["good"]


def test_where_documents_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(PLAIN)
    assert read(tmp_path / "a.txt", document_separator="file") == ["\n".join(TEXTS)]
    lines = [line for text in TEXTS for line in text.split("\n")]
    assert read(tmp_path / "a.txt", document_separator="line") == lines


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64])
def test_pieces_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr("zoo.data.readers.text_io.READ_BYTES", piece)
    monkeypatch.setattr("zoo.data.readers.text_io.ZSTD_READ_BYTES", piece)
    for name, content in (
        ("a.txt", PLAIN),
        ("a.gz", gzip.compress(PLAIN, mtime=0)),
        ("a.zst", frames(PLAIN)),
    ):
        (tmp_path / name).write_bytes(content)
        assert read(tmp_path / name) == TEXTS


def test_directories_and_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b/2.txt", "b/10.txt", "a.txt", "b/c/x", ".hidden", "b/.git/y", "z[1].txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    everything = ["a.txt", "z[1].txt", "b/10.txt", "b/2.txt", "b/c/x"]
    assert read(tmp_path) == everything
    assert read(Path("*.txt")) == ["a.txt", "z[1].txt"]
    assert read(Path("z[1].txt")) == ["z[1].txt"]
    assert read(Path("**/*.txt")) == ["a.txt", "b/10.txt", "b/2.txt", "z[1].txt"]
    assert read(Path("b/2.txt"), Path("b"), tmp_path / "a.txt") == [
        "b/2.txt",
        "b/10.txt",
        "b/c/x",
        "a.txt",
    ]


SENTENCES = [
    ["Mr. and Mrs. Bell went home.", "Dr. Who did not!"],
    ["He asked: \u201cWhy?\u201d", "\u201cBecause.\u201d", "She left."],
    ['"No." she said.', '"Oh!" said he; "no."', "(Really?)", "Yes\u2026", "'So.'"],
    [
        "It cost 3.50 dollars at 5 p.m. or so.",
        "12 men came.",
        "J. R. R. Tolkien of the U.S. wrote.",
    ],
    ["As high as I.", "Then e.g. Venus rose", "again..."][:1],
    ["no capital. here", ""][:1],
]


@pytest.mark.parametrize("wanted", SENTENCES)
def test_sentences(wanted: list[str]) -> None:
    text = "  ".join(wanted)
    assert [text[a:b] for a, b in sentence_spans(text)] == wanted


@pytest.mark.parametrize("separator", [" ", "\r", ""])
def test_a_long_line_is_cut_into_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separator: str
) -> None:
    """Cuts are between words if possible, and never inside a character."""
    monkeypatch.setattr("zoo.data.readers.text_io.MAX_LINE_BYTES", 1000)
    monkeypatch.setattr("zoo.data.readers.documents.MAX_DOCUMENT_CHARACTERS", 1000)
    text = separator.join(f"w\u00f6rd\u4e2d{number}" for number in range(2000))
    (tmp_path / "a.txt").write_text(text, "utf-8", newline="")
    for piece in (100, 1 << 20):
        monkeypatch.setattr("zoo.data.readers.text_io.READ_BYTES", piece)
        cut = read(tmp_path / "a.txt")
        assert max(map(len, cut)) <= 2000 and len(cut) > 10
        words = [word for part in cut for word in part.split()]
        assert words == text.split() if separator else "".join(words) == text


@pytest.mark.parametrize(
    "reading", [{}, {"document_separator": "file"}, {"document_separator": "line"}]
)
def test_no_document_is_longer_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: dict[str, str]
) -> None:
    monkeypatch.setattr("zoo.data.readers.documents.MAX_DOCUMENT_CHARACTERS", 100)
    text = "\n".join("some words " * 5 for _ in range(50))
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}))
    for name in ("a.txt", "a.jsonl"):
        documents = read(tmp_path / name, **reading)
        assert max(map(len, documents)) <= 100
        assert " ".join(documents).split() == text.split()


@pytest.mark.parametrize(
    "text",
    ["." * 1_000_000, '."' * 500_000, ". " * 500_000, "." + " " * 1_000_000, "J." * 500_000],
    ids=["marks", "quotes", "ends", "spaces", "initials"],
)
def test_sentences_are_found_in_linear_time(text: str) -> None:
    """A backtracking regular expression would take an hour here."""
    begin = time.process_time()
    sentence_spans(text.strip())
    assert time.process_time() - begin < 5
