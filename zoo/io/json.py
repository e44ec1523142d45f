"""Strict reading of untrusted JSON files within limits, and writing of JSON records."""

import functools
import json
import math
import re
from collections import Counter
from collections.abc import Generator, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from zoo.errors import VerificationError
from zoo.io.files import decode_text, open_regular, read_regular, reading
from zoo.io.limits import (
    MAX_INTEGER_DIGITS,
    MAX_JSON_BYTES,
    MAX_JSON_DEPTH,
    MAX_JSON_VALUES,
)
from zoo.io.sizes import check_size

Record = TypeVar("Record")

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_LEVELS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}"]', re.DOTALL)
_READ_BYTES = 1 << 20


class JsonStruct(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base class of records that are stored as JSON. An unknown key is an error."""

    # ``omit_defaults`` leaves out the object that is the default, and writes any other object, also
    # one that is equal to it. Without this, records that are equal could be written as different
    # bytes: a string that was computed is another object than a string that was read from a file.
    def __post_init__(self) -> None:
        for name, default in _default_values(type(self)).items():
            value = getattr(self, name)
            if type(value) is type(default) and value == default:
                setattr(self, name, default)


@functools.cache
def _default_values(record_type: type[JsonStruct]) -> dict[str, Any]:
    """Return name of a field -> its default, for the fields that have one."""
    names = record_type.__struct_fields__
    defaults = record_type.__struct_defaults__
    with_default = names[len(names) - len(defaults) :]
    pairs = zip(with_default, defaults, strict=True)
    return {name: default for name, default in pairs if default is not msgspec.NODEFAULT}


def encode_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8, indented by two spaces, with a final newline."""
    # What the readers of this module would refuse is refused here, so that what was written can be
    # read; msgspec writes NaN and infinity as ``null``
    data = msgspec.json.encode(value, enc_hook=plain_text)
    name = type(value).__name__
    if b"null" in data:
        _require_finite(msgspec.to_builtins(value, enc_hook=plain_text), name)
    read = parse_json(data, name, max_values=len(data))
    if isinstance(value, JsonStruct):
        try:
            msgspec.convert(read, type(value))
        except msgspec.ValidationError as error:
            raise VerificationError(f"{name} cannot be written: {error}") from error
    return msgspec.json.format(data, indent=2) + b"\n"


def plain_text(value: Any) -> str:
    """Return the text of a subclass of ``str``, which msgspec does not encode by itself."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"a value of the type {type(value).__name__} is not JSON")


def _require_finite(value: Any, name: str) -> None:
    """Check that a value holds no NaN and no infinity, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        raise VerificationError(f"{name} is {value}, which JSON cannot hold")
    if isinstance(value, dict):
        for key, item in value.items():
            _require_finite(item, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _require_finite(item, f"{name}[{number}]")


def dump_json(value: Any, **options: Any) -> str:
    """Return a value as JSON text; NaN and infinities, which JSON lacks, are null."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # or a circular reference, which is an error again
        return json.dumps(_without_nan(value), allow_nan=False, **options)


def encode_hub_json(value: Any) -> bytes:
    """Return a file of the Hub's layout: indented by two spaces, with a final newline.

    NaN and infinities are null.
    """
    return dump_json(value, indent=2, ensure_ascii=False).encode() + b"\n"


def _without_nan(value: Any) -> Any:
    """Return a value with ``None`` in place of floats that are not finite."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(
    path: Path, *, max_bytes: int = MAX_JSON_BYTES, max_values: int = MAX_JSON_VALUES
) -> Any:
    """Read a JSON file."""
    return parse_json(read_regular(path, "JSON file", max_bytes), path, max_values=max_values)


def read_json_object(
    path: Path, *, max_bytes: int = MAX_JSON_BYTES, max_values: int = MAX_JSON_VALUES
) -> dict[str, Any]:
    """Read a JSON file whose value is an object."""
    value = read_json(path, max_bytes=max_bytes, max_values=max_values)
    if not isinstance(value, dict):
        raise VerificationError(f"{path} is not a JSON object")
    return value


def read_json_record(
    path: Path,
    kind: type[Record],
    *,
    max_bytes: int = MAX_JSON_BYTES,
    max_values: int = MAX_JSON_VALUES,
) -> Record:
    """Read a JSON file as a typed value."""
    content = read_regular(path, "JSON file", max_bytes)
    return parse_json_record(content, path, kind, max_values=max_values)


def parse_json_record(
    data: bytes, name: "str | Path", kind: type[Record], *, max_values: int = MAX_JSON_VALUES
) -> Record:
    """Parse JSON text as a typed value."""
    try:
        return msgspec.convert(parse_json(data, name, max_values=max_values), kind)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{name}: {error}") from error


def parse_json(
    data: bytes, name: "str | Path", *, max_values: int = MAX_JSON_VALUES, unique_keys: bool = False
) -> Any:
    """Parse JSON text."""
    # Accepts JSON as RFC 8259 defines it, in UTF-8, with or without a byte order mark. Refuses,
    # with an error that names the file:
    #
    # * more bytes, values or levels of nesting than ``zoo.io.limits`` accepts;
    # * ``NaN`` and ``Infinity``, which are not JSON, and numbers too large for a float: many
    #   readers convert them to null, or fail on files with them;
    # * integers of more than ``MAX_INTEGER_DIGITS`` digits, which take quadratic time to parse;
    # * a duplicate key with different values: readers disagree on which one counts;
    # * lone surrogates, which cannot be written as UTF-8.
    _check_structure(data, name, max_values)
    try:
        value = json.loads(
            decode_text(data, name),
            object_pairs_hook=functools.partial(_unique, name, unique_keys),
            parse_int=functools.partial(_integer, name),
            parse_float=functools.partial(_finite, name),
            parse_constant=functools.partial(_finite, name),
        )
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise VerificationError(f"{name}: a string holds a lone surrogate") from error
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"{name} is not JSON: {error}") from error
    return value


class JsonItems:
    """The items of one array of a JSON file, one at a time, and the rest of the file."""

    # The file is an object, and the array the value of one of its keys; memory and limits are those
    # of an item. The items are read once. Afterwards, ``rest`` returns the object, with ``{}`` in
    # place of each item that is an object or an array.

    def __init__(self, path: Path, key: str, *, max_bytes: int, max_values: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.max_values = max_values
        self._begins = re.compile(rb'"' + re.escape(key.encode()) + rb'"\s*:\s*\Z')
        self._rest = bytearray()
        self._item = bytearray()
        self._depth = 0
        self._in_array = False

    def __iter__(self) -> Iterator[Any]:
        held = b""
        with open_regular(self.path) as file, reading(self.path):
            while chunk := file.read(_READ_BYTES):
                held = yield from self._split(held + chunk)
        self._append(held)

    def rest(self) -> Any:
        """Return the file without the items, after they were read."""
        rest = bytes(self._rest + self._item)
        return parse_json(rest, self.path, max_values=self.max_values, unique_keys=True)

    def _append(self, data: bytes) -> None:
        buffer = self._item if self._in_array and self._depth > 2 else self._rest
        buffer += data
        check_size(self.path, "size of a JSON value in bytes", len(buffer), self.max_bytes)

    def _split(self, data: bytes) -> Generator[Any, None, bytes]:
        """Yield the items that end in some bytes, and return an unfinished string at the end."""
        # Brackets in strings do not count
        start = 0
        end = len(data)
        for match in _STRING_OR_BRACKET.finditer(data):
            position = match.start()
            level = _LEVELS.get(match[0][0])
            if match[0] == b'"':  # its end is not read yet
                end = position
                break
            if level == 1:
                self._append(data[start:position])
                start = position
                if self._depth == 1 and match[0] == b"[":
                    self._in_array = bool(self._begins.search(self._rest))
                self._depth += 1
            elif level == -1:
                self._append(data[start : position + 1])
                start = position + 1
                self._depth -= 1
                if self._in_array and self._depth == 2:
                    yield parse_json(bytes(self._item), self.path, max_values=self.max_values)
                    self._item.clear()
                    self._rest += b"{}"
                self._in_array &= self._depth >= 2
        self._append(data[start:end])
        return data[end:]


def _check_structure(data: bytes, name: "str | Path", max_values: int) -> None:
    """Check nesting and number of values before any value is allocated."""
    opening = data.count(b"[") + data.count(b"{")
    if opening <= MAX_JSON_DEPTH and opening + data.count(b",") < max_values:
        return  # even if none of these characters were inside a string
    skeleton = _STRING.sub(b"", data)
    values = skeleton.count(b"[") + skeleton.count(b"{") + skeleton.count(b",") + 1
    check_size(name, "number of JSON values", values, max_values)
    brackets = skeleton.translate(None, _BRACKETS)
    depth = max(accumulate(map(_LEVELS.__getitem__, brackets)), default=0)
    check_size(name, "nesting of JSON", depth, MAX_JSON_DEPTH)


def _unique(name: "str | Path", unique_keys: bool, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        if unique_keys:
            (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
            raise VerificationError(f"{name}: {key[:100]!r} is given twice")
        for key, item in pairs:
            if value[key] != item:
                raise VerificationError(f"{name}: {key[:100]!r} is given twice, and differs")
    return value


def _integer(name: "str | Path", digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS:  # called for each id of a vocabulary
        check_size(name, "number of digits of an integer", len(digits), MAX_INTEGER_DIGITS)
    return int(digits)


def _finite(name: "str | Path", number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise VerificationError(f"{name}: {number[:40]} is not a finite number")
    return value
