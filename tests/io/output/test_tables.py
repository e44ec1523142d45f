"""Tables of results by ending, read back by other programs."""

import csv
import datetime
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from zoo.errors import UsageError
from zoo.io.output import parquet
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

    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 1)  # several row groups
    path = write(tmp_path / "rows.parquet")
    assert pyarrow.parquet.read_table(path).to_pylist() == ROWS
    assert pyarrow.parquet.read_table(write(tmp_path / "none.parquet", [])).num_rows == 0
    assert not list(tmp_path.glob("tmp*"))


BIG, EXACT = 2**70, 2**60 + 1  # over 64 bits; no float has the second one
COLUMNS: dict[str, tuple[list[Any], list[Any]]] = {
    "texts and numbers": ([1, "x"], ["1", '"x"']),
    "over 64 bits": ([1, BIG], ["1", str(BIG)]),
    "63 bits": ([2**63], [str(2**63)]),
    "over 64 bits in a list": ([[1], [BIG]], ["[1]", f"[{BIG}]"]),
    "over 64 bits in an object": ([{"a": 1}, {"a": -BIG}], ['{"a": 1}', f'{{"a": {-BIG}}}']),
    "digits that a float loses": ([EXACT, 1.5], [str(EXACT), "1.5"]),
    "integers and fractions": ([1, 1.5], [1.0, 1.5]),
    "half a character": (["a", "\ud800"], ["a", "\\ud800"]),
    "half a character in a list": ([["\ud800"], []], [["\\ud800"], []]),
    "null and numbers": ([None, 3], [None, 3]),
    "only null": ([None, None], [None, None]),
    "not a number": ([math.nan, 1.0], [None, 1.0]),
    "dates": ([datetime.date(2020, 1, 2), None], ["2020-01-02", None]),
    "decimals": ([Decimal("1.50")], ["1.50"]),
}


@pytest.mark.parametrize("rows_at_once", [1, 4096])
@pytest.mark.parametrize("name", COLUMNS)
def test_values_that_parquet_has_no_type_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rows_at_once: int
) -> None:
    """They are JSON, or escaped, and no computed row is lost."""
    import pyarrow.parquet

    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", rows_at_once)
    values, expected = COLUMNS[name]
    path = write(tmp_path / "rows.parquet", [{"a": value, "b": 1} for value in values])
    assert pyarrow.parquet.read_table(path).to_pydict() == {"a": expected, "b": [1] * len(values)}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_values_in_text(tmp_path: Path, ending: str, name: str) -> None:
    values, _ = COLUMNS[name]
    path = write(tmp_path / f"rows{ending}", [{"a": value} for value in values])
    if ending == ".jsonl":
        plain = [json.loads(line)["a"] for line in path.read_text("utf-8").splitlines()]
        expected = [None if value != value else value for value in values]
        assert plain == [str(v) if isinstance(v, datetime.date | Decimal) else v for v in expected]
        return
    with path.open(encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) == len(values) + 1


def test_a_carriage_return_does_not_end_a_row(tmp_path: Path) -> None:
    import pyarrow.csv

    text_types = dict.fromkeys("ab", pyarrow.string())
    rows = [{"a": "x\ry", "b": "1"}, {"a": "\r", "b": "2"}]
    for ending, delimiter in ((".csv", ","), (".tsv", "\t")):
        path = write(tmp_path / f"rows{ending}", rows)
        table = pyarrow.csv.read_csv(
            path,
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(column_types=text_types),
        )
        assert table.to_pylist() == rows


@pytest.mark.parametrize(("ending", "delimiter"), [(".csv", ","), (".tsv", "\t")])
def test_cells_that_begin_a_formula(tmp_path: Path, ending: str, delimiter: str) -> None:
    """The characters of OWASP's page on CSV injection; numbers are no formulas."""
    formulas = ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=", "-"]
    others = ["a=1", "-1.5", "+3", "1e-5", "'=1", "", " =1", "[-1]"]
    numbers = [-1, -0.5, True, None, ["=1"], {"=": 1}]
    rows = [{"=name": value} for value in (*formulas, *others, *numbers)]
    plain, safe = (
        write(tmp_path / f"{name}{ending}", rows, excel_safe=name == "safe")
        for name in ("plain", "safe")
    )

    def cells(path: Path) -> list[str]:
        with path.open(encoding="utf-8", newline="") as file:
            return [cell for (cell,) in csv.reader(file, delimiter=delimiter)]

    unsafe = cells(plain)
    assert unsafe[1 : 1 + len(formulas)] == formulas
    count = 1 + len(formulas)
    assert cells(safe)[:count] == [f"'{cell}" for cell in unsafe[:count]]
    assert cells(safe)[count:] == unsafe[count:]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_formats_without_cells_have_no_formulas(tmp_path: Path, ending: str) -> None:
    with pytest.raises(UsageError, match=r"only \.csv and \.tsv have cells"):
        check_table(tmp_path / f"rows{ending}", excel_safe=True)


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
