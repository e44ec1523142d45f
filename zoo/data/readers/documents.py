"""Readers of documents from plain text and tables, optionally compressed."""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import msgspec

from zoo.data.readers.parquet import PARQUET, open_parquet
from zoo.data.readers.problems import NoProblems, RowError, RowProblems
from zoo.data.readers.tables import column_names, read_table
from zoo.data.readers.text_io import COMPRESSED, check_expansion, read_lines
from zoo.errors import SourceError, UsageError, VerificationError, ZooError, did_you_mean
from zoo.io.limits import MAX_DOCUMENT_CHARACTERS
from zoo.io.local import require_local
from zoo.io.numbers import is_number
from zoo.io.output.overwrite import CLEANING_RECORD
from zoo.io.remote.cache import fetch_text
from zoo.io.remote.client import open_filesystem
from zoo.io.urls import parse_url

Item = TypeVar("Item")
CORPUS_MANIFEST = "corpus.json"  # The record of a built corpus, which is not read as text.
TEXT_FIELD = "text"
JSON_LINES = (".jsonl", ".ndjson", ".json")
DELIMITED = (".csv", ".tsv")
PARQUET_ROWS = 256  # Rows of Parquet that are read together.
PARQUET_PAGE_BYTES = 1 << 20  # Bytes of Parquet that are read together.


class ReaderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Separation of files into documents and sentences."""

    # where a document of a text file ends: at the end of the ``file``, at a ``blank-line`` (as in
    # the released data of sentence-pair models), or at each ``line``. A document of more than
    # ``MAX_DOCUMENT_CHARACTERS`` is cut into several
    document_separator: Literal["file", "blank-line", "line"] = "blank-line"
    # each ``line`` of a document is a sentence, or a ``rule`` splits the text, see
    # ``zoo.data.sentences``
    sentence_splitter: Literal["rule", "line"] = "rule"
    text_field: str = TEXT_FIELD  # column of the text in tables, or its key in JSON lines


def expand_paths(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files of directories and patterns, each once.

    A directory expands to all files below it, sorted by name, without hidden ones. A pattern such
    as ``data/**/*.gz`` expands to its matches, which are sorted as well. What a URL names is
    downloaded.
    """
    files_by_resolved_path: dict[Path, Path] = {}
    for path in paths:
        try:
            files = list(_expand(str(path)))
            resolved_paths = [file.resolve() for file in files]
        except (OSError, ValueError, RuntimeError) as error:  # A NUL, or an unknown user's home.
            reason = getattr(error, "strerror", None) or error
            raise SourceError(f"{str(path)!r} cannot be read: {reason}") from error
        if not files:
            raise SourceError(f"there are no files in {path}", "give text, JSON lines or Parquet")
        for resolved_path, file in zip(resolved_paths, files, strict=True):
            files_by_resolved_path.setdefault(resolved_path, file)
    return list(files_by_resolved_path.values())


def iter_files(
    paths: Iterable[str | Path],
    read: Callable[[Path, RowProblems], Iterable[Item]],
    problems: RowProblems | None,
    items: str = "rows",
    remedy: str = "give a table with rows",
) -> Iterator[Item]:
    """Yield what all files of directories and patterns have, at least one item.

    Args:
        paths: files, directories and patterns.
        read: returns the items of a file, and adds the errors of rows to the problems.
        problems: collects the errors of rows; ``None`` to refuse them at the end.
        items: name of the items in messages.
        remedy: what to do if there are none.
    """
    files = expand_paths(list(paths))
    is_empty = True
    row_problems = RowProblems() if problems is None else problems
    for file in files:
        for item in read(file, row_problems):
            is_empty = False
            yield item
    if problems is None or is_empty:
        row_problems.require_none()
    if is_empty:
        condition = " that can be used" if row_problems.count else ""
        raise UsageError(f"{', '.join(map(str, files))} has no {items}{condition}", remedy)


def _expand(text: str) -> Iterator[Path]:
    """Yield the files of a directory or pattern, or the file that a path names."""
    from zoo.checkpoint import TOKENIZER

    text = fetch_text(text)
    require_local(text, "file")
    path = Path(text).expanduser()
    if path.is_dir():
        for folder, subfolders, names in os.walk(path, onerror=_unreadable):
            if {CORPUS_MANIFEST, TOKENIZER} <= set(names):
                raise UsageError(
                    f"{folder} is a built corpus, where texts are read",
                    "train on one corpus and nothing else, or build one of all texts with `zoo "
                    "corpus build`",
                )
            # os.walk visits the folders that remain in the list, in its order.
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in sorted(names):
                file = Path(folder, name)
                if not name.startswith(".") and os.path.exists(file) and name != CLEANING_RECORD:
                    yield _require_regular(file)
        return
    if path.exists():
        yield _require_regular(path)
        return
    matches = sorted(_matches(path))
    if not matches:
        raise _absent(text)
    for match in matches:
        yield from _expand(str(match))


def require_files(text: str) -> None:
    """Check that a file, directory or pattern exists, and leave other problems to its reader.

    Of a URL, only what reads it is checked.
    """
    url = parse_url(text)
    if url is not None:
        open_filesystem(url)
        return
    require_local(text, "file")
    try:
        path = Path(text).expanduser()
        exists = path.exists() or bool(list(_matches(path)))
    except (OSError, ValueError, RuntimeError):
        return
    if not exists:
        raise _absent(text)


def _absent(text: str) -> SourceError:
    what = "matches nothing" if glob.has_magic(text) else "does not exist"
    return SourceError(f"{text} {what}", "give a file, a directory or a pattern")


def _unreadable(error: OSError) -> NoReturn:
    raise SourceError(f"{error.filename}: {error.strerror}") from error


def _require_regular(path: Path) -> Path:
    if not path.is_file():
        raise SourceError(
            f"{path} is not a regular file", "it is read several times: write it to a file"
        )
    return path


def _matches(pattern: Path) -> Iterator[Path]:
    """Yield the paths that a pattern matches, without hidden ones."""
    # ``**`` does not follow links to directories: two links upwards would make exponentially many
    # paths.
    parts = pattern.parts
    fixed = 0  # Number of parts before the first one with a wildcard.
    while fixed < len(parts) and not glob.has_magic(parts[fixed]):
        fixed += 1
    if fixed == len(parts):
        return
    relative_pattern = Path(*parts[fixed:])
    matches_hidden = "/." in f"/{relative_pattern}"
    for match in Path(*parts[:fixed]).glob(str(relative_pattern)):
        is_hidden = any(part.startswith(".") for part in match.parts[fixed:])
        if os.path.exists(match) and (matches_hidden or not is_hidden):
            yield match


def read_documents(
    files: Iterable[Path], reading: ReaderConfig, problems: RowProblems | None = None
) -> Iterator[str]:
    """Yield the documents of files that are not only white space.

    The suffix of a file determines its format: ``.jsonl``, ``.ndjson`` and ``.json`` have a JSON
    object per line, ``.csv`` and ``.tsv`` a header and a row per line, ``.parquet`` is Parquet, and
    any other file is UTF-8 text; ``.gz`` or ``.zst`` may follow, except for Parquet. A row is a
    document, and ``ReaderConfig`` sets the separator of documents in text. A document of more than
    ``MAX_DOCUMENT_CHARACTERS`` is yielded in several parts.
    """
    for file in files:
        for text in _reader(file)(file, reading, problems):
            for part in document_parts(text):
                if part and not part.isspace():
                    yield part


def encode_documents(documents: Iterable[str]) -> bytes:
    """Return documents as JSON lines with the field ``TEXT_FIELD``."""
    rows = ({TEXT_FIELD: document} for document in documents)
    return msgspec.json.Encoder().encode_lines(rows)


def document_parts(text: str) -> Iterator[str]:
    """Yield a text, in parts if it is too long, cut between lines or words if possible."""
    start = 0
    while len(text) - start > MAX_DOCUMENT_CHARACTERS:
        end = _end_of_part(text, start)
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _end_of_part(text: str, start: int) -> int:
    """Return where a part of a long text ends: at a line or a word of its second half."""
    half = start + MAX_DOCUMENT_CHARACTERS // 2
    limit = start + MAX_DOCUMENT_CHARACTERS
    for separator in "\n ":
        end = text.rfind(separator, half, limit)
        if end > 0:
            return end
    return limit


def _reader(file: Path) -> Any:
    name = file.name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    if name.endswith(JSON_LINES):
        return _json_lines
    if name.endswith(DELIMITED):
        return _delimited
    if name.endswith(PARQUET):
        return _parquet
    return _plain


def _delimited(file: Path, reading: ReaderConfig, problems: RowProblems | None) -> Iterator[str]:
    names = column_names(file)
    # A column that is a number counts in a file without a header.
    if names and reading.text_field not in names and not is_number(reading.text_field):
        raise missing_field(str(file), reading.text_field, list(names))
    for row in read_table(file, [reading.text_field], problems or NoProblems()):
        yield row.values[reading.text_field]


def _plain(file: Path, reading: ReaderConfig, _: RowProblems | None) -> Iterator[str]:
    if reading.document_separator == "line":
        yield from read_lines(file)
        return
    lines: list[str] = []
    size = 0
    is_split_by_blank_lines = reading.document_separator != "file"
    for line in read_lines(file):
        is_blank = not line or line.isspace()
        if not is_blank:
            lines.append(line)
            size += len(line)
        ends_document = is_blank and is_split_by_blank_lines
        if lines and (ends_document or size >= MAX_DOCUMENT_CHARACTERS):
            yield "\n".join(lines)
            lines = []
            size = 0
    yield "\n".join(lines)


def _json_lines(file: Path, reading: ReaderConfig, problems: RowProblems | None) -> Iterator[str]:
    field = reading.text_field
    has_field = False  # Whether a row had the field.
    # The field's name is only known at run time. A struct of this field skips all others unread: a
    # row of 20 words and five fields takes 2.3 us, and 3.3 us where it is decoded to a dict.
    row_type = msgspec.defstruct("Row", [("text", str, msgspec.field(name=field))])
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(row_type)
    for number, line in enumerate(read_lines(file, rows=True), 1):
        if not line or line.isspace():
            continue
        try:
            text: str = decoder.decode(line).text
            text.encode()
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            row_error = json_row_error(file, number, line, field, error)
            # If the first row lacks the field, its name is wrong.
            if problems is None or (isinstance(row_error, UsageError) and not has_field):
                raise row_error from error
            problems.add(RowError(row_error.what, row_error.hint))
            continue
        has_field = True
        yield text


def json_row_error(file: Path, number: int, line: str, field: str, error: Exception) -> ZooError:
    """Return the error that describes an invalid line of JSON."""
    location = f"{file}, line {number}"
    try:
        row = msgspec.json.decode(line)
    except RecursionError:
        return VerificationError(
            f"{location} is not JSON: it is nested too deeply", "each line must be an object"
        )
    except msgspec.DecodeError:
        return VerificationError(f"{location} is not JSON: {error}", "each line must be an object")
    if not isinstance(row, dict):
        return VerificationError(f"{location} is not a JSON object", "each line must be one")
    if field not in row:
        return missing_field(location, field, list(map(str, row)))
    return VerificationError(
        f"{location}: {field!r} is not a string: {error}", "leave that row out"
    )


def missing_field(location: str, field: str, fields: list[str]) -> UsageError:
    """Return the error for rows without the text's field, which names theirs."""
    hint = did_you_mean(field, fields) or f"it has {', '.join(fields[:8]) or 'none'}"
    return UsageError(f"{location} has no field {field!r}", f"{hint}; --text names it")


def _parquet(file: Path, reading: ReaderConfig, _: RowProblems | None) -> Iterator[str]:
    field = reading.text_field
    with open_parquet(file) as table:
        check_parquet_text(file, table, field)
    # A dictionary keeps repeated texts once in memory.
    options = {"read_dictionary": [field], "pre_buffer": False, "buffer_size": PARQUET_PAGE_BYTES}
    with open_parquet(file, **options) as table:
        batches = table.iter_batches(batch_size=PARQUET_ROWS, columns=[field])
        values = chain.from_iterable(batch.column(0) for batch in batches)
        for number, value in enumerate(values, 1):
            text = value.as_py()
            if not isinstance(text, str):
                raise VerificationError(
                    f"{file}, row {number}: {field!r} is not a string: {text!r}",
                    "leave that row out",
                )
            yield text


def check_parquet_text(file: Path, table: Any, field: str) -> None:
    """Check that a column holds text, and that its size is plausible for the size of the file."""
    from pyarrow import types

    if field not in table.schema_arrow.names:
        raise missing_field(str(file), field, table.schema_arrow.names)
    value_type = table.schema_arrow.field(field).type
    if types.is_dictionary(value_type):
        value_type = value_type.value_type
    if not types.is_string(value_type) and not types.is_large_string(value_type):
        raise VerificationError(
            f"{file}, row 1: {field!r} is not a string: the column has {str(value_type)[:100]}",
            "--text names another",
        )
    metadata = table.metadata
    total = 0
    for number in range(metadata.num_row_groups):
        total += metadata.row_group(number).total_byte_size
    check_expansion(file, total, file.stat().st_size)
