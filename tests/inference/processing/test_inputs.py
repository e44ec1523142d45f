import gzip
import io
import os
import sys
from pathlib import Path

import pytest

from tests.processes import run_limited
from zoo.errors import UsageError
from zoo.inference.processing.inputs import InputFormat, read_records
from zoo.inference.processing.records import as_records
from zoo.inference.processing.table_records import InputColumns
from zoo.io.limits import MAX_INPUT_LINE_BYTES, MAX_TEXT_CHARACTERS


def file(tmp_path: Path, name: str, content: bytes) -> str:
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


def texts(source: str, file_format: InputFormat = "auto") -> list[str]:
    return [record.text for record in read_records(source=source, file_format=file_format)]


def test_every_line_of_a_text_file_is_a_text(tmp_path: Path) -> None:
    source = file(tmp_path, "a.txt", b"\xef\xbb\xbfone \r\n\n  two\n\xe2\x80\xa8x\nlast")
    assert texts(source) == ["one ", "", "  two", "\u2028x", "last"]
    assert [r.location for r in read_records(source=source)][:2] == [f"{source}:1", f"{source}:2"]


def test_an_empty_file_has_no_texts(tmp_path: Path) -> None:
    assert texts(file(tmp_path, "a.txt", b"")) == []


@pytest.mark.parametrize("name", ["a.jsonl", "a.JSON", "a.ndjson"])
def test_json_lines_carry_their_other_keys(tmp_path: Path, name: str) -> None:
    lines = b'{"id": 123456789012345678901, "text": "one", "text_pair": "two"}\n\n{"text": ""}\n'
    first, second = read_records(source=file(tmp_path, name, lines))
    assert (first.text, first.pair, first.extra) == ("one", "two", {"id": 123456789012345678901})
    assert (second.text, second.pair, second.extra) == ("", None, {})
    assert second.location.endswith(":3")


def test_the_kind_may_be_given(tmp_path: Path) -> None:
    source = file(tmp_path, "a.txt", b'{"text": "one"}\n')
    assert texts(source, "text") == ['{"text": "one"}']
    assert texts(source, "jsonl") == ["one"]
    assert texts(file(tmp_path, "b.jsonl", b'{"text": "one"}\n'), "text") == ['{"text": "one"}']


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"x"', "not a JSON object"),
        (b'{"txt": "x"}', "no text"),
        (b'{"text": 3}', "text is of type int"),
        (b'{"text": null}', "text is of type NoneType"),
        (b'{"text": "x", "text_pair": []}', "text_pair is of type list"),
        (b'{"text": "x"} {}', "is not JSON: Extra data"),
        (b'{"text": "\xff"}', "byte 11 of the line is not UTF-8"),
        (b'{"text": "\\ud800"}', ""),
        (b'{"text": ' + b"[" * 100_000, ""),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: bytes, why: str) -> None:
    source = file(tmp_path, "a.jsonl", b'{"text": "fine"}\n' + line + b"\n")
    records = read_records(source=source)
    assert next(records).text == "fine"
    with pytest.raises(UsageError) as caught:
        next(records)
    assert f"{source}:2" in caught.value.what
    assert why in caught.value.what
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"text": "a", "n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nesting of JSON"),
        (b'{"text": "a", "n": NaN}', "NaN is not a finite number"),
        (b'{"text": "a", "n": 1e999}', "is not a finite number"),
        (b'{"text": "a", "n": ' + b"9" * 10_000 + b"}", "number of digits"),
        (b'{"text": "a", "text": "b"}', "'text' is given twice"),
        (b'{"text": "\\ud800"}', "surrogate"),
        (b'{"text": "a\x07"}', "Invalid control character"),
        (b'{"text": "' + b"a" * (MAX_TEXT_CHARACTERS + 1) + b'"}', "has 4,194,305 characters"),
        (
            b'{"text": "a", "n": "' + b"a" * MAX_INPUT_LINE_BYTES + b'"}',
            "has over 33,554,432 bytes",
        ),
    ],
    ids=lambda value: str(value[:30]),
)
def test_a_hostile_json_line_is_named(tmp_path: Path, line: bytes, why: str) -> None:
    path = file(tmp_path, "texts.jsonl", line + b"\n")
    with pytest.raises(UsageError, match=why) as refused:
        texts(path)
    assert str(refused.value).startswith(f"{path}:1")
    assert len(str(refused.value)) < 400


def test_a_line_without_end_is_refused_in_bounded_memory() -> None:
    code = (
        "from zoo.inference.processing.inputs import read_records\n"
        "list(read_records(source='/dev/zero'))"
    )
    ended = run_limited([sys.executable, "-c", code], seconds=30)
    assert "/dev/zero:1: the line has over 33,554,432 bytes" in ended.stderr
    assert ended.peak_bytes < 200 << 20


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    source = file(tmp_path, "a.txt", "fine\nna\u00efve\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"a\.txt:2: byte 3 of the line is not UTF-8"):
        texts(source)


@pytest.mark.parametrize("name", ["absent.txt", ".", "nul\0byte"])
def test_a_file_that_cannot_be_read_is_refused_before_anything_is_read(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_records(source=str(tmp_path / name))


def test_arguments_are_texts() -> None:
    assert [r.text for r in read_records(["a", "-", ""])] == ["a", "-", ""]
    assert [r.location for r in read_records(["a", "b"])] == ["text 1", "text 2"]


def test_no_input_and_two_inputs_are_refused() -> None:
    with pytest.raises(UsageError, match="no text"):
        read_records()
    with pytest.raises(UsageError, match="both"):
        read_records(["a"], "-")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b'{"text": "one", "id": 1}\n{"text": "two"}\n', ["one", "two"]),
        (b'\xef\xbb\xbf\n {"text": "one"}\n', ["one"]),
        (b"3\n", ["3"]),
        (b"[MASK] sat.\n", ["[MASK] sat."]),
        (b"\n\none\n", ["", "", "one"]),
        (b"\n\n", ["", ""]),
    ],
)
def test_standard_input_tells_what_it_is_by_its_first_line(
    content: bytes, expected: list[str]
) -> None:
    assert [r.text for r in read_records(["-"], stdin=io.BytesIO(content))] == expected
    assert [r.text for r in read_records(source="-", stdin=io.BytesIO(content))] == expected


@pytest.mark.parametrize("name", ["a.txt", "texts", None])
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"text": "one"\n{"text": "two"}\n', "is not JSON"),
        (b'{"other": "one"}\n', "has no text"),
        (b'[{"text": "one"}]\n', "is not a JSON object"),
        (b'[\n{"text": "one"}\n]\n', "is not JSON"),
        (b"PAR1\x15\x04", "is a binary file: Parquet; give --format parquet"),
        (gzip.compress(b"one", mtime=0), "is a binary file: gzip"),
        ("one\n".encode("utf-16"), "is a binary file: UTF-16"),
        (b"one\ntwo\0\n", "is a binary file"),
    ],
)
def test_what_begins_like_another_format_is_not_plain_text(
    content: bytes, why: str, name: str | None, tmp_path: Path
) -> None:
    source = "-" if name is None else file(tmp_path, name, content)
    with pytest.raises(UsageError) as caught:
        list(read_records(source=source, stdin=io.BytesIO(content)))
    assert why in str(caught.value) and ("standard input" if name is None else source) in str(
        caught.value
    )
    if content.startswith(b"{"):
        lines = content.decode().splitlines()
        assert texts(file(tmp_path, "b.jsonl", content), "text") == lines  # as was asked for


def test_keys_may_be_named(tmp_path: Path) -> None:
    source = file(tmp_path, "a.jsonl", b'{"q": "one", "text_pair": "x", "b": "two", "n": 1}\n')
    (pair,) = read_records(source=source, columns=InputColumns("q", "b"))
    assert (pair.text, pair.pair, pair.extra) == ("one", "two", {"text_pair": "x", "n": 1})
    (record,) = read_records(source=source, columns=InputColumns("q"))
    assert (record.text, record.pair, record.extra) == ("one", "x", {"b": "two", "n": 1})
    clash = file(tmp_path, "b.jsonl", b'{"q": "one", "text": "two"}\n')
    with pytest.raises(UsageError, match="has another key 'text'"):
        list(read_records(source=clash, columns=InputColumns("q", reserved=["q"])))
    with pytest.raises(UsageError, match="plain text, which has no columns"):
        list(read_records(source=file(tmp_path, "a.txt", b"a"), columns=InputColumns("q")))


def test_standard_input_is_read_as_it_comes() -> None:
    inner, outer = os.pipe()
    with open(outer, "wb") as writer:
        writer.write(b"one\ntwo\n")
        writer.flush()
        records = read_records(["-"], stdin=os.fdopen(inner, "rb"))
        assert [next(records).text, next(records).text] == ["one", "two"]  # before end of file
        writer.write(b"three\n")
    assert [record.text for record in records] == ["three"]


def test_texts_from_python_are_checked() -> None:
    pair, alone = as_records([("a", "b"), "c"])
    assert (pair.text, pair.pair, alone.text, alone.pair) == ("a", "b", "c", None)
    with pytest.raises(UsageError, match="a single string"):
        next(as_records("abc"))
    with pytest.raises(UsageError, match="text 2 is of type int"):
        list(as_records(["a", 3]))  # type: ignore[list-item]
    with pytest.raises(UsageError, match="text 1: character 2 is not valid Unicode"):
        list(as_records(["a\udcff"]))
