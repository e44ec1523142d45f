"""Tables as input of ``zoo run``, compared with Python's csv and with pyarrow."""

import csv
import datetime
import io
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from zoo.data.readers.labelled import Columns, read_samples
from zoo.errors import UsageError
from zoo.inference.processing.inputs import InputFormat, read_records
from zoo.inference.processing.records import RecordKeys, TextExample
from zoo.inference.processing.table_records import LOG, InputColumns
from zoo.tasks.multiple_choice.data import ChoiceInput
from zoo.tasks.multiple_choice.predict import Choose
from zoo.tasks.question_answering.predict import Answer
from zoo.tasks.sentence_embedding.similarity import Similarity

TEXTS = ['quoted ", text', "two\nlines", " spaces ", "", "last"]


def table(path: Path, header: list[str], *rows: list[str]) -> str:
    """Write a table with a byte-order mark and line ends of Windows."""
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",").writerows(
            [header, *rows]
        )
    return str(path)


def records(source: str, *, file_format: InputFormat = "auto", **options: Any) -> list[TextExample]:
    columns = {k: options.pop(k) for k in ("text", "pair", "choices", "reserved") if k in options}
    read = options.pop("columns", InputColumns)(**columns)
    return list(read_records(source=source, file_format=file_format, columns=read, **options))


def test_texts_are_those_that_fine_tuning_reads(tmp_path: Path) -> None:
    rows = [[text, "pos"] for text in TEXTS]
    source = table(tmp_path / "a.csv", ["sentence", "label"], *rows)
    found = records(source)
    assert [record.text for record in found] == TEXTS
    assert [record.extra for record in found] == [{"label": "pos"}] * len(TEXTS)
    samples = read_samples([source], Columns("sentence"))
    assert [(r.text, r.location) for r in found] == [(s.text, s.location) for s in samples]


@pytest.mark.parametrize("file_format", ["csv", "tsv", "parquet"])
def test_formats_are_alike_in_files_and_standard_input(
    file_format: InputFormat, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{file_format}"
    if file_format == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"id": ["1", "2"], "text": ["a b", "c"]}), path)
    else:
        table(path, ["id", "text"], ["1", "a b"], ["2", "c"])
    expected = [("a b", {"id": "1"}), ("c", {"id": "2"})]
    assert [(r.text, r.extra) for r in records(str(path))] == expected
    copy = tmp_path / "copy.dat"
    copy.write_bytes(path.read_bytes())
    assert [(r.text, r.extra) for r in records(str(copy), file_format=file_format)] == expected
    stdin = io.BytesIO(path.read_bytes())
    found = records("-", file_format=file_format, stdin=stdin)
    assert [(r.text, r.extra) for r in found] == expected
    assert found[0].location.startswith("standard input")


@pytest.mark.parametrize(
    ("header", "columns", "keys", "expected"),
    [
        (["x"], {}, RecordKeys(), ("0", None)),
        (["sentence", "text"], {}, RecordKeys(), ("1", None)),
        (["a", "text_pair", "text"], {}, RecordKeys(), ("2", "1")),
        (["a", "b", "c"], {"text": "b"}, RecordKeys(), ("1", None)),
        (["a", "b", "c"], {"text": "b", "pair": "a"}, RecordKeys(), ("1", "0")),
        (["text", "b"], {"pair": "b"}, RecordKeys(), ("0", "1")),
        (["context", "question"], {}, Answer.keys, ("1", "0")),
        (["context", "ask"], {"text": "ask"}, Answer.keys, ("1", "0")),
        (["text", "text_pair"], {}, Similarity.keys, ("0", "1")),
        (["continuation", "context"], {}, RecordKeys("text", ("context", "continuation")), "10"),
    ],
)
def test_columns(
    header: list[str], columns: dict[str, Any], keys: RecordKeys, expected: Any, tmp_path: Path
) -> None:
    source = table(tmp_path / "a.csv", header, [str(n) for n in range(len(header))])
    (record,) = records(source, keys=keys, **columns)
    assert (record.text, record.pair) == tuple(expected)


@pytest.mark.parametrize(
    ("header", "columns", "keys", "why"),
    [
        (["a", "b"], {}, RecordKeys(), "has the columns a, b, .* name them with --text"),
        (["a", "b"], {}, Similarity.keys, "columns a, b, .* with --text and --pair"),
        (["question", "b"], {}, Answer.keys, "columns question, b, .* with --pair"),
        (["a", "b"], {"text": "c"}, RecordKeys(), "has no column 'c'; there are a, b"),
    ],
)
def test_columns_that_are_unclear_are_listed(
    header: list[str], columns: dict[str, Any], keys: RecordKeys, why: str, tmp_path: Path
) -> None:
    source = table(tmp_path / "a.csv", header, ["x", "y"])
    with pytest.raises(UsageError, match=why):
        records(source, keys=keys, **columns)


def test_a_table_without_a_header_has_numbers(tmp_path: Path) -> None:
    source = table(tmp_path / "a.tsv", ["one", "two", "3"], ["four", "five", "6"])
    found = records(source, text="2", pair="1")
    assert [(r.text, r.pair, r.extra) for r in found] == [
        ("two", "one", {"3": "3"}),
        ("five", "four", {"3": "6"}),
    ]


def test_columns_of_results_are_left_out_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(LOG, "propagate", True)
    source = table(
        tmp_path / "a.csv", ["s", "text", "label", "id"], ["a", "b", "c", "7"], ["d"] * 4
    )
    first, second = records(source, text="s", reserved=["label"])
    assert (first.text, first.extra) == ("a", {"text": "b", "id": "7"})
    assert second.extra == {"text": "d", "id": "d"}
    (warning,) = {record.getMessage() for record in caplog.records}
    assert "keys of their own called label, and" in warning


def test_columns_keep_their_names_and_order(tmp_path: Path) -> None:
    """In tables and in JSON lines; a name that results have is that of the task."""
    header = ["id", "body", "note", "answer"]
    source = table(tmp_path / "a.csv", header, ["1", "a b", "n", "c d"])
    lines = tmp_path / "a.jsonl"
    lines.write_text(json.dumps(dict(zip(header, ["1", "a b", "n", "c d"], strict=True))) + "\n")
    for path in (source, str(lines)):
        keys = RecordKeys()
        (single,) = records(path, text="body")
        assert list(keys.columns(single).items()) == [
            ("id", "1"), ("body", "a b"), ("note", "n"), ("answer", "c d")
        ]  # fmt: skip
        (pair,) = records(path, text="answer", pair="body", reserved=["answer"])
        assert list(keys.columns(pair)) == ["id", "body", "note", "text"]
        assert (pair.text, pair.pair) == ("c d", "a b")
    headerless = table(tmp_path / "b.tsv", ["1", "a b", "n"])
    (numbered,) = records(headerless, text="2")
    assert list(RecordKeys().columns(numbered).items()) == [("1", "1"), ("text", "a b"), ("3", "n")]


def test_choices_are_in_lists_or_columns(tmp_path: Path) -> None:
    options: dict[str, Any] = {"keys": Choose.keys, "columns": ChoiceInput}
    lists = table(tmp_path / "a.csv", ["context", "choices"], ["a", '["b", "c"]'])
    numbered = table(tmp_path / "b.csv", ["sent1", "ending0", "ending1"], ["a", "b", "c"])
    named = table(tmp_path / "c.csv", ["x", "y", "z"], ["a", "b", "c"])
    found = [
        *records(lists, **options),
        *records(numbered, **options),
        *records(named, text="x", choices=("y", "z"), **options),
    ]
    assert [(r.text, r.pair, r.extra) for r in found] == [("a", None, {"choices": ["b", "c"]})] * 3


def test_values_of_parquet_are_written_as_json(tmp_path: Path) -> None:
    day = datetime.date(2026, 1, 2)
    values = {"text": ["a", None], "day": [day, day], "blob": [b"\x00", b""]}
    pyarrow.parquet.write_table(pyarrow.table(values), tmp_path / "a.parquet")
    source = iter(read_records(source=str(tmp_path / "a.parquet")))
    assert next(source).extra == {"day": "2026-01-02", "blob": "AA=="}
    with pytest.raises(UsageError, match="row 2: text is null, where text is needed"):
        next(source)


def test_a_bad_row_is_named_after_the_good_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,id\ngood,1\n"open,2\n')
    source = read_records(source=str(tmp_path / "a.csv"))
    assert next(source).text == "good"
    with pytest.raises(UsageError, match=r"a\.csv:3 opens a quote that is not closed"):
        next(source)
