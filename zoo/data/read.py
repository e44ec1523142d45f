"""Texts from files: plain text, JSON lines and Parquet, as they are or compressed.

What a file holds is told by its name: ``.jsonl``, ``.ndjson`` and ``.json`` have a JSON object a
line, ``.parquet`` is Parquet, and anything else is text in UTF-8; ``.gz`` or ``.zst`` may follow,
but for Parquet. A row of JSON or Parquet is a document. In text, documents end as ``Reading``
says.
"""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from zoo.data.bytes import COMPRESSED, lines
from zoo.errors import SourceError, UsageError, VerificationError, nearest

JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = ".parquet"
ROWS = 256  # of Parquet, at a time


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How files become documents and sentences.

    Attributes:
        document: where a document of a text file ends: at the end of the ``file``, at a
            ``blank-line`` (as in the released data of sentence-pair models), or at each ``line``.
        sentences: each ``line`` of a document is one, or a ``rule`` finds them, see
            ``zoo.data.sentences``.
        text_field: what holds the text of a row of JSON or Parquet.
    """

    document: Literal["file", "blank-line", "line"] = "blank-line"
    sentences: Literal["rule", "line"] = "rule"
    text_field: str = "text"


def find(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files that are meant, each once.

    A directory stands for the files in it and in those below, in order of their names, but for
    hidden ones. A pattern such as ``data/**/*.gz`` stands for what matches, in that order too.

    Raises:
        SourceError: a path does not exist, or leads to no file.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        files = list(_files(str(path)))
        if not files:
            raise SourceError(f"there are no files in {path}", "give text, JSON lines or Parquet")
        for file in files:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _files(text: str) -> Iterator[Path]:
    path = Path(text).expanduser()
    if path.is_dir():
        for folder, below, names in os.walk(path):
            below[:] = sorted(name for name in below if not name.startswith("."))
            yield from (Path(folder, n) for n in sorted(names) if not n.startswith("."))
    elif path.is_file():
        yield path
    elif path.exists():
        raise SourceError(f"{path} is no file", "give text, JSON lines or Parquet")
    elif matches := sorted(glob.glob(str(path), recursive=True)):
        for match in filter(os.path.exists, matches):  # not a link that leads nowhere
            yield from _files(match)
    else:
        what = "matches nothing" if glob.has_magic(text) else "does not exist"
        raise SourceError(f"{text} {what}", "give a file, a directory or a pattern")


def documents(files: Iterable[Path], reading: Reading) -> Iterator[str]:
    """Yield the documents of files, those that hold more than white space.

    Raises:
        SourceError: a file cannot be read, or what reads it is not installed.
        VerificationError: a file is damaged, or not UTF-8, or a row is not as it should be.
        UsageError: rows have no such field.
    """
    for file in files:
        for text in _reader(file)(file, reading):
            if text and not text.isspace():
                yield text


def _reader(file: Path) -> Any:
    name = file.name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    if name.endswith(JSON_LINES):
        return _json_lines
    return _parquet if name.endswith(PARQUET) else _plain


def _plain(file: Path, reading: Reading) -> Iterator[str]:
    if reading.document == "line":
        yield from lines(file)
        return
    held: list[str] = []
    whole = reading.document == "file"
    for line in lines(file):
        if line and not line.isspace():
            held.append(line)
        elif held and not whole:
            yield "\n".join(held)
            held = []
    yield "\n".join(held)


def _json_lines(file: Path, reading: Reading) -> Iterator[str]:
    field = reading.text_field
    row = msgspec.defstruct("Row", [("text", str, msgspec.field(name=field))])
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(row)
    for number, line in enumerate(lines(file), 1):
        if line and not line.isspace():
            try:
                text: str = decoder.decode(line).text
                text.encode()
            except (msgspec.DecodeError, UnicodeError) as error:
                raise _bad_row(file, number, line, field, error) from error
            yield text


def _bad_row(file: Path, number: int, line: str, field: str, error: Exception) -> Exception:
    """Say what is wrong with a line of JSON."""
    where = f"{file}, line {number}"
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return VerificationError(f"{where} is not JSON: {error}", "each line must be an object")
    if not isinstance(found, dict):
        return VerificationError(f"{where} is no JSON object", "each line must be one")
    if field not in found:
        return _no_field(where, field, list(map(str, found)))
    return VerificationError(f"{where}: {field!r} is no text: {error}", "leave that row out")


def _no_field(where: str, field: str, known: list[str]) -> UsageError:
    hint = nearest(field, known) or f"it has {', '.join(known[:8]) or 'none'}"
    return UsageError(f"{where} has no field {field!r}", f"{hint}; --text-field names it")


def _parquet(file: Path, reading: Reading) -> Iterator[str]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise SourceError(
            f"reading {file} takes pyarrow, which is not installed",
            "pip install 'plm-zoo[parquet]'",
        ) from error
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            if reading.text_field not in table.schema_arrow.names:
                raise _no_field(str(file), reading.text_field, table.schema_arrow.names)
            for batch in table.iter_batches(batch_size=ROWS, columns=[reading.text_field]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    if not isinstance(text, str):
                        raise VerificationError(
                            f"{file}, row {number}: {reading.text_field!r} is no text: {text!r}",
                            "leave that row out",
                        )
                    yield text
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:
        why = " ".join(str(error).split())[:200]
        raise VerificationError(
            f"{file} is not a Parquet file: {why}", "download it again"
        ) from error
