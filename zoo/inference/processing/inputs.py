"""Input of ``zoo run``: arguments, a file or standard input; plain text, JSON lines or a table."""

import functools
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from zoo.data.readers.tables import suffix_of
from zoo.errors import UsageError, VerificationError, did_you_mean
from zoo.inference.processing.records import (
    SPLIT,
    RecordKeys,
    TextExample,
    as_records,
    validate_text,
)
from zoo.inference.processing.table_records import (
    SUFFIXES,
    InputColumns,
    read_table_records,
    spooled_records,
)
from zoo.io.json import parse_json
from zoo.io.limits import MAX_INPUT_LINE_BYTES
from zoo.io.local import require_local
from zoo.io.remote.cache import fetch

InputFormat = Literal["auto", "text", "jsonl", "csv", "tsv", "parquet"]
KINDS: tuple[InputFormat, ...] = get_args(InputFormat)
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
BOM = b"\xef\xbb\xbf"
DEFAULT_KEYS = RecordKeys()
DEFAULT_COLUMNS = InputColumns()
# an object, an array, or one of its brackets in a line; [MASK] is text
JSON_BEGINS = re.compile(rb"\s*(\{|\[\s*([\[{\"]|$))")
BLANK_LINES = 1000  # before the first line with text
# beginnings of files of other kinds
BINARY = {
    b"PAR1": ("Parquet", "give --format parquet"),
    b"\x1f\x8b": ("gzip", "unpack it"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unpack it"),
    b"PK\x03\x04": ("zip, as spreadsheets are", "save it as CSV"),
    b"\xff\xfe": ("UTF-16", "convert it to UTF-8"),
    b"\xfe\xff": ("UTF-16", "convert it to UTF-8"),
}


def read_records(
    texts: Sequence[str] = (),
    source: str | None = None,
    *,
    file_format: InputFormat = "auto",
    stdin: BinaryIO | None = None,
    keys: RecordKeys = DEFAULT_KEYS,
    columns: InputColumns = DEFAULT_COLUMNS,
) -> Iterator[TextExample]:
    """Return an iterator over input records; a file is opened at once, not on first use.

    Plain text has one text per line. Empty lines count, so that line n of the output belongs to
    line n of the input. JSON lines are objects with the key ``text``, optionally ``text_pair``,
    or the keys of the task; other keys are copied to the output, and blank lines are skipped.
    Both are UTF-8, and a byte-order mark at the start is ignored. Tables are read by
    ``table_records``.

    The ending of a file decides its format. Where it does not, what begins like JSON is read as
    JSON lines, and an error if it is not; everything else is plain text.
    """
    if tuple(texts) == ("-",) and source is None:
        texts = ()
        source = "-"
    if texts and source is not None:
        raise UsageError("texts were given both as arguments and in a file", "give one of them")
    if texts and keys.text is not None:
        return as_records(texts)
    if texts:
        if len(texts) % 2:
            first, second = keys.pair
            raise UsageError(
                f"{len(texts)} texts are not pairs",
                f"give a {first} and a {second}, one after another",
            )
        return as_records(zip(texts[::2], texts[1::2], strict=True))
    if source is None:
        raise UsageError(
            "there is no text to work on", "give texts, or --input FILE, or - for standard input"
        )
    name, path = ("standard input", None) if source == "-" else (source, fetch(source))
    if file_format == "auto" and path is not None:
        kinds: dict[str, InputFormat] = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
        is_json = path.name.lower().endswith(JSON_SUFFIXES)
        file_format = "jsonl" if is_json else kinds.get(suffix_of(path), "auto")
    table = (keys, columns)
    if file_format in SUFFIXES and path is not None and path.is_file():
        return read_table_records(path, file_format, *table)
    file = (stdin or sys.stdin.buffer) if path is None else _open(path)
    if file_format in SUFFIXES:
        return spooled_records(file, name, file_format, *table)
    return _read(name, file, file_format, keys, columns)


def require_first(records: Iterator[TextExample]) -> Iterator[TextExample]:
    """Return the same records, after reading the first one: wrong columns are errors at once."""
    first = list(itertools.islice(records, 1))
    return itertools.chain(first, records)


def _open(path: Path) -> BinaryIO:
    require_local(path, "file")
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {path}: {why}") from error


def _read(
    name: str, file: BinaryIO, file_format: InputFormat, keys: RecordKeys, columns: InputColumns
) -> Iterator[TextExample]:
    """Yield the records of lines of text or JSON."""
    names = keys.renamed(columns.text, columns.pair)
    with file:
        lines = _lines(name, file)
        if file_format == "auto":
            head: list[bytes] = []
            for line in lines:
                head.append(line)
                if line.strip() or len(head) > BLANK_LINES:
                    break
            file_format = "jsonl" if head and JSON_BEGINS.match(head[-1]) else "text"
            lines = itertools.chain(head, lines)
        if file_format == "text" and (columns.text is not None or columns.pair is not None):
            raise UsageError(
                f"{name} holds plain text, which has no columns", "give --format, or no column"
            )
        for number, line in enumerate(lines, 1):
            location = f"{name}:{number}"
            if file_format == "text" and keys.text is None:
                raise UsageError(f"{name} holds plain text, and pairs are needed", keys.example)
            if file_format == "text":
                if b"\0" in line:
                    raise UsageError(
                        f"{name} is a binary file: there is a zero byte in it",
                        "give a file of texts in UTF-8",
                    )
                yield TextExample(
                    validate_text(_decode(line, location), location), location=location
                )
            elif line.strip():
                yield _parse(line, location, names, keys, columns)


def _lines(name: str, file: BinaryIO) -> Iterator[bytes]:
    """Yield lines of bounded length, without a byte-order mark."""
    lines = iter(functools.partial(file.readline, MAX_INPUT_LINE_BYTES + 1), b"")
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(BOM)
            for begins, (format_name, remedy) in BINARY.items():
                if line.startswith(begins):
                    raise UsageError(f"{name} is a binary file: {format_name}", remedy)
        if len(line) > MAX_INPUT_LINE_BYTES:
            raise UsageError(
                f"{name}:{number}: the line has over {MAX_INPUT_LINE_BYTES:,} bytes", SPLIT
            )
        yield line


def _decode(line: bytes, location: str) -> str:
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{location}: byte {error.start + 1} of the line is not UTF-8",
            "convert the file to UTF-8",
        ) from None


def _parse(
    line: bytes, location: str, names: RecordKeys, keys: RecordKeys, columns: InputColumns
) -> TextExample:
    """Return the record of a line of JSON; ``names`` are the keys of its texts."""
    _decode(line, location)
    try:
        value = parse_json(line.rstrip(), location)
    except VerificationError as error:
        raise UsageError(error.what, f"{names.example}; --format text reads lines") from None
    if not isinstance(value, dict):
        raise UsageError(f"{location} is not a JSON object", names.example)
    return record_of_object(value, location, keys, columns)


def record_of_object(
    value: dict[str, Any],
    location: str,
    keys: RecordKeys = DEFAULT_KEYS,
    columns: InputColumns = DEFAULT_COLUMNS,
) -> TextExample:
    """Return the record of an object, such as a line of JSON.

    Args:
        value: the object.
        location: its name for messages.
        keys: keys of the task's texts in results, if the results have a key of the same name.
        columns: the columns to read.

    Raises:
        UsageError: a text is missing or not valid.
    """
    names = keys.renamed(columns.text, columns.pair)
    if (missing := names.missing(value)) is not None:
        raise UsageError(f"{location} has no {missing}", _remedy(missing, list(value), columns))
    text_names = names.names(value)
    texts = [validate_text(value[name], f"{location}: {name}") for name in text_names]
    if len(texts) == 1:
        value.pop(names.pair[1], None)  # null
    defaults = keys.pair
    if len(texts) == 1 and keys.text is not None:
        defaults = (keys.text, keys.pair[1])
    text_keys: dict[str, str] = {}
    for name, default in zip(text_names, defaults, strict=False):
        text_keys[name] = columns.result_key(name, default)
    extra: dict[str, Any] = {}
    result_columns: dict[str, Any] = {}
    for name, item in value.items():
        if name in text_keys:
            result_columns[text_keys[name]] = item
            continue
        if name in text_keys.values():
            raise UsageError(
                f"{location} has another key {name!r}, which results have for the text",
                "rename or remove it",
            )
        extra[name] = item
        result_columns[name] = item
    pair = texts[1] if len(texts) > 1 else None
    return TextExample(texts[0], pair, extra, location, result_columns)


def _remedy(missing: str, present: Sequence[str], columns: InputColumns) -> str:
    """Return what to do about a key that an object lacks."""
    names = ", ".join(map(repr, present[:8])) or "none"
    if missing in (columns.text, columns.pair):
        suggestion = did_you_mean(missing, list(present))
        return f"{suggestion} Its keys are {names}" if suggestion else f"its keys are {names}"
    flags = columns.text_flag
    if columns.pair_flag:
        flags += f" or {columns.pair_flag}"
    return f"its keys are {names}; name one with {flags}"
