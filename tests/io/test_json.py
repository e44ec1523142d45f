"""Reading of untrusted JSON."""

import ast
import json
import math
import os
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from tests.processes import run_limited
from zoo.errors import SourceError, VerificationError
from zoo.io import json as json_reader
from zoo.io.json import (
    JsonItems,
    JsonStruct,
    dump_json,
    encode_json,
    parse_json,
    read_json,
    read_json_object,
    read_json_record,
)


class Setting(msgspec.Struct, forbid_unknown_fields=True):
    """A record with typed fields."""

    size: int
    rate: float = 0.5


def test_json_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text in ('{"a": [1, -2.5e3, "\\ud83d\\ude00", null, true]}', '﻿{"a": 1}'):
        path.write_text(text, encoding="utf-8")
        assert read_json_object(path)["a"] in ([1, -2500.0, "😀", None, True], 1)
    path.write_text('{"size": 1000000000000000019884624838656, "rate": 1, "rate": 1}')
    assert read_json_record(path, Setting) == Setting(10**30 + 19884624838656, 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is not JSON: Expecting value"),
        (b"[1,]", "is not JSON"),
        (b'"\\', "is not JSON"),
        (b'["\n"]', "is not JSON: Invalid control character"),
        (b'{"a": NaN}', "NaN is not a finite number"),
        (b"[-Infinity]", "-Infinity is not a finite number"),
        (b"1e999", "1e999 is not a finite number"),
        (b'{"a": 1, "a": 2}', "'a' is given twice, and differs"),
        (b'["\\ud800"]', "lone surrogate"),
        (b'{"\\uDFFF": 1}', "lone surrogate"),
        (b"\xff\xfe[\0]\0", "is not UTF-8: invalid start byte at byte 0"),
        (b'"\xed\xa0\x80"', "is not UTF-8"),
        (b"9" * 101, "number of digits of an integer is 101, and at most 100"),
        (b"[" * 65 + b"]" * 65, "nesting of JSON is 65, and at most 64"),
        (b'{"a":' * 50_000, "nesting of JSON is 50,000"),
        (b"[" * 10_000_000, "number of JSON values is 10,000,001"),
        (b"[[],1" + b",[]" * 1_000_000, "number of JSON values is 2,000,004"),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_malformed_text_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(VerificationError, match=message) as refused:
        parse_json(text, "config.json")
    assert str(refused.value).startswith("config.json")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_brackets_in_strings_do_not_count() -> None:
    text = '["' + '[{,\\"' * 500_000 + '", "\\\\"]'
    values: Any = parse_json(text.encode(), "a file")
    assert values == ['[{,"' * 500_000, "\\"]


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="pipe is not a regular file"):
        read_json(tmp_path / "pipe")
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(VerificationError, match="size of the JSON file in bytes is 1,099,511"):
        read_json(path)
    path.write_text("[]")
    with pytest.raises(VerificationError, match=r"config.json is not a JSON object"):
        read_json_object(path)
    for text, message in (('{"size": "1"}', "Expected `int`"), ('{"sice": 1}', "unknown field")):
        path.write_text(text)
        with pytest.raises(VerificationError, match=message):
            read_json_record(path, Setting)


NESTED_LISTS: Any = json.loads("[" * 70 + "]" * 70)


class Scores(JsonStruct):
    values: dict[str, float] = msgspec.field(default_factory=dict)
    more: Any = None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Scores(values={"mse": float("inf")}), "Scores.values.mse is inf, which JSON cannot hold"),
        (Scores(more=[1.0, float("nan")]), r"Scores.more\[1\] is nan"),
        (Scores(values={"mse": None}), "Scores cannot be written: Expected `float`"),  # type: ignore[dict-item]
        ({"a": 10**101}, "number of digits of an integer is 102"),
        ({"1": 2, 1: 3}, "'1' is given twice"),
        (NESTED_LISTS, "nesting of JSON is 70"),
    ],
)
def test_what_could_not_be_read_is_not_written(value: Any, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        encode_json(value)


def test_none_is_written(tmp_path: Path) -> None:
    record = Scores(values={"mse": 1e300}, more=[None, {"a": None}])
    (tmp_path / "r.json").write_bytes(encode_json(record))
    assert read_json_record(tmp_path / "r.json", Scores) == record


class Truncation(JsonStruct):
    side: Literal["left", "right"] = "right"
    rate: float = 0.5
    size: int = 1000
    modes: tuple[str, ...] = ("mean", "max")
    flag: bool = True


def test_equal_records_are_equal_bytes(tmp_path: Path) -> None:
    """Values that were computed or read are other objects than the defaults that they equal."""
    side: Any = "RIGHT".lower()
    computed = Truncation(
        side=side, rate=float("0.5"), size=int("1000"), modes=tuple(["mean", "max"])
    )
    assert side is not Truncation().side
    assert encode_json(computed) == encode_json(Truncation()) == b"{}\n"
    path = tmp_path / "r.json"
    path.write_text('{"side": "right", "rate": 0.5, "size": 1000, "modes": ["mean", "max"]}')
    assert encode_json(read_json_record(path, Truncation)) == b"{}\n"
    changed = msgspec.structs.replace(Truncation(side="left"), side=side)
    assert msgspec.to_builtins(changed) == {}
    assert json.loads(encode_json(Truncation(rate=1.0, flag=False))) == {"rate": 1.0, "flag": False}


def test_the_largest_accepted_file_takes_bounded_time_and_memory(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[" + "{}," * 499_998 + '"' + "x" * (14 << 20) + '"]')
    code = "import sys; from pathlib import Path; from zoo.io.json import read_json; "
    child = run_limited(
        [sys.executable, "-c", code + "assert len(read_json(Path(sys.argv[1]))) == 499_999", path],
        seconds=30,
    )
    assert child.returncode == 0, child.stderr
    assert child.peak_bytes < 250 << 20


def items_of(path: Path, **limits: int) -> JsonItems:
    return JsonItems(path, "data", **{"max_bytes": 1000, "max_values": 100, **limits})


def all_of(items: JsonItems) -> tuple[list[Any], Any]:
    return list(items), items.rest()


NESTED = {
    "version": 'say "data": [',
    "first": {"data": [{"a": 1}]},
    "data": [
        {"text": 'a "quoted" \\ [{]}', "list": [[1], {"data": [2]}]},
        [3, "\u00e9"],
        {},
        {"data": [{"end": "\\"}]},
    ],
    "after": [{"b": [4]}],
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
def test_items_are_those_of_the_array(
    tmp_path: Path, size: int, indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in pieces that end anywhere, in strings and escapes too."""
    monkeypatch.setattr(json_reader, "_READ_BYTES", size)
    path = tmp_path / "t.json"
    path.write_text("\ufeff" + json.dumps(NESTED, indent=indent, ensure_ascii=False))
    items = items_of(path)
    assert list(items) == NESTED["data"]
    assert items.rest() == {**NESTED, "data": [{}] * 4}


def test_values_that_are_no_objects_stay_in_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for text in ('{"data": [1, {"a": 2}, null]}', '{"data": {"a": [{}]}}', '[{"data": [{}]}]', "3"):
        path.write_text(text)
        items = items_of(path)
        objects = [{"a": 2}] if text.startswith('{"data": [') else []
        assert list(items) == objects
        assert items.rest() == json.loads(text.replace('{"a": 2}', "{}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [{"a": 1}, {"a": ', "is not JSON"),
        ('{"data": [{"a": 1}, {"a": "b', "is not JSON"),
        ('{"data": [{"a": 1}]', "is not JSON"),
        ('{"data": [{"a": 1} {"a": 2}]}', "is not JSON"),
        ('{"data": [{"a": 1}]}}', "is not JSON"),
        ('{"data": [{"a": 1}]]}', "is not JSON"),
        ('{"data": [{"a": 1}], "data": [{"a": 2}]}', "'data' is given twice"),
        ('{"data": [{"a": NaN}]}', "NaN is not a finite number"),
        ('{"data": [{"a": 1, "a": 2}]}', "'a' is given twice, and differs"),
        ('{"data": [{"a": "' + "x" * 1000 + '"}]}', "size of a JSON value in bytes is 1,0"),
        ('{"a": "' + "x" * 1000 + '"}', "size of a JSON value in bytes is 1,0"),
        ('{"data": [{"a": [' + "1," * 99 + "1]}]}", "number of JSON values is 102"),
        ('{"data": [' + "{}," * 99 + "{}]}", "number of JSON values is 20"),
        ('{"data": [' + "[" * 64, "nesting of JSON is 66"),
        ('{"data": [' + "[" * 65 + "]" * 65 + "]}", "nesting of JSON is 65"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_malformed_items_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    items = items_of(path)
    with pytest.raises(VerificationError, match=message):
        all_of(items)


def test_numbers_that_json_lacks_are_null() -> None:
    value = {"a": [1.5, math.nan, (math.inf, "NaN")], "b": {"c": -math.inf}, "d": None}
    expected = {"a": [1.5, None, [None, "NaN"]], "b": {"c": None}, "d": None}
    assert json.loads(dump_json(value)) == expected
    assert dump_json({"a": 1e-05}, indent=1) == json.dumps({"a": 1e-05}, indent=1)


def test_json_is_written_strictly_everywhere() -> None:
    """Writers of JSON go through ``dump_json`` or msgspec, or refuse NaN themselves."""
    lenient, checked = [], 0
    for path in sorted(Path(json_reader.__file__).parents[1].rglob("*.py")):
        code = path.read_text("utf-8")
        if "json.dump" not in code:
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.dumps", "json.dump"):
                strict = "allow_nan" in [keyword.arg for keyword in node.keywords]
                lenient += [] if strict else [f"{path}:{node.lineno}"]
                checked += 1
    assert lenient == [] and checked > 1
