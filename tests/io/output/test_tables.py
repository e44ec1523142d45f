"""Tables of results by ending, read back by other programs."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from zoo.errors import UsageError
from zoo.io.output import tables
from zoo.io.output.tables import check_table, table_writer

ROWS: list[dict[str, Any]] = [
    {
        "text": 'a "quoted",\r\n\ttext',
        "label": ["x", "y"],
        "score": 0.1,
        "correct": True,
        "n": None,
    },
    {"text": "\ufeffö", "label": [], "score": 1e-300, "correct": False, "n": None},
]


def write(path: Path, rows: list[dict[str, Any]] = ROWS, **options: Any) -> Path:
    with table_writer(path, **options) as write_row:
        for row in rows:
            write_row(row)
    return path


def test_json_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "new folder" / "rows.jsonl")
    assert [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]] == ROWS


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_delimited(tmp_path: Path, ending: str, delimiter: str) -> None:
    path = write(tmp_path / f"rows.{ending}")
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter=delimiter)
    assert header == ["text", "label", "score", "correct", "n"]
    assert rows == [
        [ROWS[0]["text"], '["x", "y"]', "0.1", "true", ""],
        [ROWS[1]["text"], "[]", "1e-300", "false", ""],
    ]


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet

    monkeypatch.setattr(tables, "ROWS_AT_ONCE", 1)  # several row groups
    path = write(tmp_path / "rows.parquet")
    assert pyarrow.parquet.read_table(path).to_pylist() == ROWS
    assert pyarrow.parquet.read_table(write(tmp_path / "none.parquet", [])).num_rows == 0
    with pytest.raises(UsageError, match="several types") as caught:
        write(tmp_path / "mixed.parquet", [{"a": 1}, {"a": "x"}])
    assert caught.value.hint == "write .jsonl"
    assert not (tmp_path / "mixed.parquet").exists()


def test_a_file_of_the_user_stays(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists") as caught:
        write(path)
    assert "--force" in caught.value.hint and path.read_text() == "mine"
    assert write(path, force=True).read_text("utf-8").startswith("text,label")
    with pytest.raises(UsageError, match="is read by this command"):
        write(path, force=True, sources=[path])
    (tmp_path / "link.csv").symlink_to(path)
    with pytest.raises(UsageError, match="not a regular file"):
        write(tmp_path / "link.csv", force=True)


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), table_writer(tmp_path / "rows.csv") as write_row:
        write_row(ROWS[0])
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["rows", "rows.xlsx"])
def test_unknown_endings(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="the format is unknown") as caught:
        check_table(tmp_path / name)
    assert ".jsonl, .ndjson, .csv, .tsv, .parquet" in caught.value.hint
