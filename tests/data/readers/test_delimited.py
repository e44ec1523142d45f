"""Separators of tables that their suffix does not tell, and quotes that are not closed."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from zoo.data.readers import delimited
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.tables import column_names, read_rows
from zoo.errors import UsageError

ROWS = [("the cat, sat", "good"), ('a "dog" ran', "bad"), ("rain; snow", "good")]


def write_table(path: Path, delimiter: str, rows: Sequence[Sequence[str]], first: str = "") -> None:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(first)
        csv.writer(file, delimiter=delimiter).writerows([("text", "label"), *rows])


def values(path: Path, columns: Sequence[str] | None = None) -> list[tuple[str, ...]]:
    return [tuple(row.values.values()) for row in read_rows(path, columns)]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize("delimiter", list(delimited.NAMES))
def test_columns_are_separated_as_the_first_rows_agree(
    tmp_path: Path, suffix: str, delimiter: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / f"t{suffix}"
    rows = ROWS
    if delimiter == "\t" and suffix != ".csv":  # without quotes
        path.write_text("".join("\t".join(row) + "\n" for row in [("text", "label"), *ROWS]))
    else:
        write_table(path, delimiter, rows)
    caplog.set_level(logging.INFO, "zoo")
    assert column_names(path) == ("text", "label")
    assert values(path) == rows
    assert values(path, ["label"]) == [(label,) for _, label in rows]
    is_usual = delimited.DELIMITERS[suffix] == delimiter
    message = f"{path}: reading columns that are separated by {delimited.NAMES[delimiter]}"
    assert caplog.messages == [message] * (not is_usual)  # once, for three reads


@pytest.mark.parametrize("delimiter", [";", "|", "\t", ",", "^"])
@pytest.mark.parametrize("line", ["sep={}\n", "SEP={}\r\n", '"sep={}"\n', "\n\nsep={}\n"])
def test_a_line_of_excel_names_the_separator(tmp_path: Path, line: str, delimiter: str) -> None:
    path = tmp_path / "t.csv"
    write_table(path, delimiter, ROWS, line.format(delimiter))
    assert values(path) == ROWS
    lines = path.read_text().split("\n")
    expected = 1 + next(k for k, text in enumerate(lines) if "the cat" in text)
    first = next(iter(read_rows(path, ["text"])))
    assert first.location == f"{path}:{expected}"


def test_columns_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("good;the cat\nbad;a, dog\nbad;rain\n")
    assert values(path, ["2", "1"]) == [("the cat", "good"), ("a, dog", "bad"), ("rain", "bad")]
    with pytest.raises(UsageError, match="has no column '3'"):
        values(path, ["3"])
    with pytest.raises(
        UsageError, match=r"1 column without commas, or 2 columns with semicolons; .* sep=;"
    ):
        values(path, ["1"])
    path.write_text("sep=;\n" + path.read_text())
    assert values(path, ["1"]) == [("good",), ("bad",), ("bad",)]


PROSE = [
    "text\nThe cat, sat\nA dog, ran\nRain, snow\n",
    "text\n1,000 cats\n2,000 dogs\n3,000 rats\n",
    "text\none; two\nthree; four\n",
    "text\na|b\nc|d\n",
    "A text (long, or short)\nfirst\nsecond, third\nfourth\n",
]


@pytest.mark.parametrize("content", PROSE)
@pytest.mark.parametrize("suffix", [".tsv", ".txt", ".csv"])
def test_one_column_of_texts_is_not_split(tmp_path: Path, suffix: str, content: str) -> None:
    path = tmp_path / f"t{suffix}"
    if suffix == ".csv":
        content = "".join(f'"{line}"\n' for line in content.splitlines())
    path.write_text(content)
    texts = content.replace('"', "").splitlines()
    assert column_names(path) == (texts[0],)
    assert values(path) == values(path, texts[:1]) == [(text,) for text in texts[1:]]


def test_texts_without_a_header_are_not_split(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    texts = ["Yes, sir", "No, sir", "Well, well", "a;b", "c"]
    path.write_text("\n".join(texts))
    assert values(path, ["1"]) == [(text,) for text in texts]


AMBIGUOUS = {
    "two separators": ("id,text|label\n1,a|b\n2,c|d\n", "2 columns with commas, or 2 columns with"),
    "spaces": ("text; label\na; b\nc; d\n", "1 column without commas, or 2 columns with semi"),
    "other rows": (
        "text;label\na;b;c\nd;e;f\ng;h\n",
        "the header has 2 columns separated by semicolons, and 2 of the first 3 rows have another",
    ),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_a_table_that_can_be_read_in_several_ways_is_refused(tmp_path: Path, name: str) -> None:
    content, message = AMBIGUOUS[name]
    path = tmp_path / "t.csv"
    path.write_text(content)
    for read in (column_names, values):
        with pytest.raises(UsageError, match=f"{re.escape(message)}.*line before the header"):
            read(path)


def test_the_requested_columns_select_a_separator(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,text|label\n1,a|b\n2,c|d\n")
    assert values(path, ["id"]) == [("1",), ("2",)]
    assert values(path, ["label"]) == [("b",), ("d",)]
    path.write_text("sep=,\n" + path.read_text())
    assert values(path, ["text|label"]) == [("a|b",), ("c|d",)]


def test_a_row_with_another_number_of_cells_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text;label\na;b\nc\nd;e\nf;g;h\n")
    with pytest.raises(UsageError, match="2 of the first 4 rows have another number"):
        column_names(path)
    problems = RowProblems(skip=True)
    rows = [row.values["text"] for row in read_rows(path, ["text", "label"], problems)]
    assert rows == ["a", "d"]
    assert [error.what.rpartition(":")[2] for error in problems.first_errors] == [
        "3 has 1 columns, and the header has 2",
        "5 has 3 columns, and the header has 2",
    ]


def test_a_cell_with_more_lines_than_the_sample(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    text = "\n".join("a, b" for _ in range(delimited.SAMPLE_LINES + 50))
    write_table(path, ";", [(text, "x"), ("c", "d")])
    assert values(path) == [(text, "x"), ("c", "d")]


OPEN_ROWS = {
    "quotes that open again": 'a","c\n',
    "one quote a row": '"a,b\n',
    "quotes in every cell": '"","a\n',
}


@pytest.mark.parametrize("name", OPEN_ROWS)
def test_open_quotes_take_time_in_proportion_to_their_rows(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines_read, following = list[str](), delimited._Lines.__next__

    def counted(lines: delimited._Lines) -> str:
        lines_read.append(following(lines))
        return lines_read[-1]

    monkeypatch.setattr(delimited._Lines, "__next__", counted)
    path, rows = tmp_path / "t.csv", 3000
    path.write_text("text,label\n" + OPEN_ROWS[name] * rows)
    problems = RowProblems(skip=True)
    samples = list(read_rows(path, ["text", "label"], problems))
    assert problems.count + 2 * len(samples) >= rows  # a record has two rows at most
    assert len(lines_read) < 3 * rows + 5 * delimited.SAMPLE_LINES


def reference_records(lines: Sequence[str]) -> list[tuple[int, object]]:
    """Read the records that begin at each line from scratch, as the quadratic reader does."""
    import csv

    records, number = list[tuple[int, object]](), 0
    while number < len(lines):
        reader = csv.reader(iter(lines[number:]), strict=True)
        try:
            records.append((number + 1, next(reader)))
            number += reader.line_num
        except csv.Error:
            records.append((number + 1, None))
            number += 1
    return records


@pytest.mark.parametrize("seed", range(20))
def test_records_are_those_of_a_reader_that_begins_at_every_line(tmp_path: Path, seed: int) -> None:
    import random

    random_numbers = random.Random(seed)
    lines = []
    for _ in range(200):
        pieces = random_numbers.choices(
            ['"', ",", "a", '""', '","'], k=random_numbers.randint(1, 5)
        )
        lines.append("".join(pieces) + "\n")
    path = tmp_path / "t.csv"
    path.write_text("".join(lines))
    records = [
        (number, cells if isinstance(cells, list) else None)
        for number, cells in delimited.read_records(path, delimited.Dialect(",", True))
    ]
    assert records == reference_records(lines)
