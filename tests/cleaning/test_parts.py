"""The parts that files are cut into."""

import json
from pathlib import Path

import pytest

from zoo.cleaning import parts
from zoo.cleaning.parts import ReadTexts, cut_files
from zoo.data.readers.documents import ReaderConfig
from zoo.data.streams.source import find_shards
from zoo.io.limits import MAX_DOCUMENT_CHARACTERS

# A byte order mark, a blank line, an empty text, one that is too long, and no line feed at the end.
TEXTS = ["first", "", *(f"text {number} " + "é" * (number % 7) for number in range(60)), "last"]
LONG_TEXT = "word " * (MAX_DOCUMENT_CHARACTERS // 5 + 10)


def read_all(file: Path) -> tuple[int, list[tuple[str, str]]]:
    """Return the number of pieces of a file, and the identifiers and texts of all."""
    pieces = cut_files(find_shards([file]))
    read = ReadTexts(pieces, ReaderConfig())
    documents = []
    for task in range(len(pieces)):
        documents += [(document.id, document.text) for document in read(None, task, len(pieces))]
    return len(pieces), documents


def write_json_lines(folder: Path, texts: list[str]) -> Path:
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    lines.insert(20, " ")
    path = folder / "a.jsonl"
    path.write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    return path


def write_parquet(folder: Path, texts: list[str]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = folder / "a.parquet"
    parquet.write_table(pyarrow.table({"text": texts}), path, row_group_size=7)
    return path


@pytest.mark.parametrize("write", [write_json_lines, write_parquet])
@pytest.mark.parametrize("piece_bytes", [1, 100, 1000])
def test_pieces_of_a_file_have_its_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: object, piece_bytes: int
) -> None:
    assert callable(write)
    path = write(tmp_path, TEXTS)
    expected = [(f"{path}:{number}", text) for number, text in enumerate(TEXTS, 1) if text]
    assert read_all(path) == (1, expected)
    monkeypatch.setattr(parts, "MIN_PIECE_BYTES", piece_bytes)
    number, documents = read_all(path)
    assert documents == expected
    assert number > 1


def test_a_large_input_has_a_limited_number_of_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MIN_PIECE_BYTES", 1)
    monkeypatch.setattr(parts, "MAX_PIECES", 5)
    number, documents = read_all(write_json_lines(tmp_path, TEXTS))
    assert 4 <= number <= 6
    assert len(documents) == len(TEXTS) - 1


def test_a_text_that_is_too_long_has_several_identifiers(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path, ["a", LONG_TEXT, "b"])
    _, documents = read_all(path)
    assert [name for name, _ in documents] == [f"{path}:{n}" for n in ("1", "2", "2.2", "3")]
    assert "".join(text for _, text in documents[1:3]) == LONG_TEXT


def test_text_without_rows_is_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MIN_PIECE_BYTES", 1)
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    path = tmp_path / "a.txt"
    assert read_all(path) == (1, [(f"{path}:1", "one"), (f"{path}:2", "two")])
