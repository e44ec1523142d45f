"""Input of ``zoo run``: arguments, a file or standard input; plain text or JSON lines.

Plain text has one text per line. Empty lines count, so that line n of the output belongs to line n
of the input. JSON lines are objects with the key ``text``, optionally ``text_pair``, or the keys of
the task; other keys are copied to the output, and blank lines are skipped. Both are UTF-8, and a
byte-order mark at the start is ignored.
"""

import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from zoo.errors import UsageError, VerificationError
from zoo.inference.processing.records import (
    SPLIT,
    RecordKeys,
    TextExample,
    as_records,
    validate_text,
)
from zoo.io.json import parse_json
from zoo.io.limits import MAX_INPUT_LINE_BYTES

Kind = Literal["auto", "text", "jsonl"]
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
BOM = b"\xef\xbb\xbf"
DEFAULT_KEYS = RecordKeys()


def read_records(
    texts: Sequence[str] = (),
    source: str | None = None,
    *,
    kind: Kind = "auto",
    stdin: BinaryIO | None = None,
    keys: RecordKeys = DEFAULT_KEYS,
) -> Iterator[TextExample]:
    """Return an iterator over input records; a file is opened at once, not on first use.

    Args:
        texts: the texts, two for each record if all records are pairs; a single ``-`` means
            standard input.
        source: file to read, or ``-`` for standard input.
        kind: ``text``, ``jsonl``, or ``auto``: JSON lines for a file called ``*.jsonl``,
            ``*.ndjson`` or ``*.json``, and for a standard input whose first line is such an object.
        stdin: replacement of standard input.
        keys: keys of the texts in JSON lines.

    Raises:
        UsageError: there is no input or more than one, the file cannot be read, or (while
            iterating) a line is not UTF-8 or no such object.
    """
    if tuple(texts) == ("-",) and source is None:
        texts, source = (), "-"
    if texts and source is not None:
        raise UsageError("texts were given both as arguments and in a file", "give one of them")
    if texts:
        return as_records(texts if keys.text is not None else _pairs(texts, keys))
    if source is None:
        raise UsageError(
            "there is no text to work on", "give texts, or --input FILE, or - for standard input"
        )
    if source == "-":
        return _read("standard input", stdin or sys.stdin.buffer, kind, keys)
    try:
        file = Path(source).open("rb")  # noqa: SIM115 (the generator closes it)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {source}: {why}") from error
    if kind == "auto":
        kind = "jsonl" if source.lower().endswith(JSON_SUFFIXES) else "text"
    return _read(source, file, kind, keys)


def _pairs(texts: Sequence[str], keys: RecordKeys) -> Iterator[tuple[str, str]]:
    if len(texts) % 2:
        first, second = keys.pair
        raise UsageError(
            f"{len(texts)} texts are not pairs", f"give a {first} and a {second}, one after another"
        )
    return zip(texts[::2], texts[1::2], strict=True)


def _read(name: str, file: BinaryIO, kind: Kind, keys: RecordKeys) -> Iterator[TextExample]:
    with file:
        lines = iter(functools.partial(file.readline, MAX_INPUT_LINE_BYTES + 1), b"")
        for number, line in enumerate(lines, 1):
            location = f"{name}:{number}"
            if len(line) > MAX_INPUT_LINE_BYTES:
                raise UsageError(
                    f"{location}: the line has over {MAX_INPUT_LINE_BYTES:,} bytes", SPLIT
                )
            if number == 1:
                line = line.removeprefix(BOM)
                kind = kind if kind != "auto" else _guess(line, keys)
            if kind == "text" and keys.text is None:
                raise UsageError(f"{name} holds plain text, and pairs are needed", keys.example)
            if kind == "text":
                yield TextExample(
                    validate_text(_decode(line, location), location), location=location
                )
            elif line.strip():
                yield _parse(line, location, keys)


def _guess(line: bytes, keys: RecordKeys) -> Kind:
    """Return the format of standard input, inferred from its first line."""
    try:
        value = parse_json(line, "standard input")
    except VerificationError:
        return "text"
    return "jsonl" if isinstance(value, dict) and keys.missing(value) is None else "text"


def _decode(line: bytes, location: str) -> str:
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{location}: byte {error.start + 1} of the line is not UTF-8",
            "convert the file to UTF-8",
        ) from None


def _parse(line: bytes, location: str, keys: RecordKeys) -> TextExample:
    _decode(line, location)
    try:
        value = parse_json(line.rstrip(), location)
    except VerificationError as error:
        raise UsageError(error.what, keys.example) from None
    if not isinstance(value, dict):
        raise UsageError(f"{location} is not a JSON object", keys.example)
    if (missing := keys.missing(value)) is not None:
        raise UsageError(f"{location} has no {missing}", keys.example)
    names = keys.names(value)
    text, *pair = (validate_text(value.pop(name), f"{location}: {name}") for name in names)
    if keys.text in names:
        value.pop(keys.pair[1], None)  # null
    return TextExample(text, pair[0] if pair else None, value, location)
