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

Item = TypeVar("Item")
CORPUS_MANIFEST = "corpus.json"  # of a built corpus, which is not read as text
JSON_LINES = (".jsonl", ".ndjson", ".json")
DELIMITED = (".csv", ".tsv")
# rows and bytes of Parquet that are read together
PARQUET_ROWS = 256
PARQUET_PAGE_BYTES = 1 << 20


class ReaderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Separation of files into documents and sentences."""

    # where a document of a text file ends: at the end of the ``file``, at a ``blank-line`` (as in
    # the released data of sentence-pair models), or at each ``line``. A document of more than
    # ``MAX_DOCUMENT_CHARACTERS`` is cut into several
    document_separator: Literal["file", "blank-line", "line"] = "blank-line"
    # each ``line`` of a document is a sentence, or a ``rule`` splits the text, see
    # ``zoo.data.sentences``
    sentence_splitter: Literal["rule", "line"] = "rule"
    text_field: str = "text"  # column of the text in tables, or its key in JSON lines


def expand_paths(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files of directories and patterns, each once."""
    # A directory expands to all files below it, sorted by name, without hidden ones. A pattern such
    # as ``data/**/*.gz`` expands to its matches, sorted too.
    distinct: dict[Path, Path] = {}
    for path in paths:
        try:
            files = list(_files(str(path)))
            resolved = [file.resolve() for file in files]
        except (OSError, ValueError, RuntimeError) as error:  # a NUL, or the home of no user
            reason = getattr(error, "strerror", None) or error
            raise SourceError(f"{str(path)!r} cannot be read: {reason}") from error
        if not files:
            raise SourceError(f"there are no files in {path}", "give text, JSON lines or Parquet")
        for key, file in zip(resolved, files, strict=True):
            distinct.setdefault(key, file)
    return list(distinct.values())


def iter_files(
    paths: Iterable[str | Path],
    read: Callable[[Path, RowProblems], Iterable[Item]],
    problems: RowProblems | None,
    items: str = "rows",
    remedy: str = "give a table with rows",
) -> Iterator[Item]:
    """Yield what all files of directories and patterns have, at least one item."""
    files = expand_paths(list(paths))
    empty = True
    found = RowProblems() if problems is None else problems
    for file in files:
        for item in read(file, found):
            empty = False
            yield item
    if problems is None or empty:
        found.require_none()
    if empty:
        which = " that can be used" if found.count else ""
        raise UsageError(f"{', '.join(map(str, files))} has no {items}{which}", remedy)


def _files(text: str) -> Iterator[Path]:
    from zoo.checkpoint import TOKENIZER

    require_local(text, "file")
    path = Path(text).expanduser()
    if path.is_dir():
        for folder, below, names in os.walk(path, onerror=_unreadable):
            if {CORPUS_MANIFEST, TOKENIZER} <= set(names):
                raise UsageError(
                    f"{folder} is a built corpus, where texts are read",
                    "train on one corpus and nothing else, or build one of all texts with `zoo "
                    "corpus build`",
                )
            below[:] = sorted(name for name in below if not name.startswith("."))
            inside = (Path(folder, name) for name in sorted(names) if not name.startswith("."))
            yield from (_regular(file) for file in inside if os.path.exists(file))
    elif path.exists():
        yield _regular(path)
    elif matches := sorted(_matches(path)):
        for match in matches:
            yield from _files(str(match))
    else:
        raise _absent(text)


def require_files(text: str) -> None:
    """Check that a file, directory or pattern exists, and leave other problems to its reader."""
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


def _regular(path: Path) -> Path:
    if not path.is_file():
        raise SourceError(
            f"{path} is not a regular file", "it is read several times: write it to a file"
        )
    return path


def _matches(pattern: Path) -> Iterator[Path]:
    """Yield the paths that a pattern matches, without hidden ones."""
    # ``**`` does not follow links to directories: two links upwards would make exponentially many
    # paths
    parts = pattern.parts
    fixed = next((k for k, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    if fixed == len(parts):
        return
    for match in Path(*parts[:fixed]).glob(str(Path(*parts[fixed:]))):
        hidden = any(part.startswith(".") for part in match.parts[fixed:])
        if os.path.exists(match) and (not hidden or "/." in f"/{Path(*parts[fixed:])}"):
            yield match


def read_documents(
    files: Iterable[Path], reading: ReaderConfig, problems: RowProblems | None = None
) -> Iterator[str]:
    """Yield the documents of files that are not only white space."""
    # The suffix of a file determines its format: ``.jsonl``, ``.ndjson`` and ``.json`` have a JSON
    # object per line, ``.csv`` and ``.tsv`` a header and a row per line, ``.parquet`` is Parquet,
    # and any other file is UTF-8 text; ``.gz`` or ``.zst`` may follow, except for Parquet. A row is
    # a document, and ``ReaderConfig`` sets the separator of documents in text.
    #
    # A document of more than ``MAX_DOCUMENT_CHARACTERS`` is yielded in several parts
    for file in files:
        for text in _reader(file)(file, reading, problems):
            for part in _parts(text):
                if part and not part.isspace():
                    yield part


def _parts(text: str) -> Iterator[str]:
    """Yield a text, in parts if it is too long, cut between lines or words if possible."""
    start = 0
    most = MAX_DOCUMENT_CHARACTERS
    while len(text) - start > most:
        half = start + most // 2
        ends = (text.rfind(separator, half, start + most) for separator in "\n ")
        end = next((end for end in ends if end > 0), start + most)
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _reader(file: Path) -> Any:
    name = file.name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    if name.endswith(JSON_LINES):
        return _json_lines
    if name.endswith(DELIMITED):
        return _delimited
    return _parquet if name.endswith(PARQUET) else _plain


def _delimited(file: Path, reading: ReaderConfig, problems: RowProblems | None) -> Iterator[str]:
    names = column_names(file)
    # a column that is a number counts in a file without a header
    if names and reading.text_field not in names and not is_number(reading.text_field):
        raise _no_field(str(file), reading.text_field, list(names))
    for row in read_table(file, [reading.text_field], problems or NoProblems()):
        yield row.values[reading.text_field]


def _plain(file: Path, reading: ReaderConfig, _: RowProblems | None) -> Iterator[str]:
    if reading.document_separator == "line":
        yield from read_lines(file)
        return
    held: list[str] = []
    size = 0
    whole = reading.document_separator == "file"
    for line in read_lines(file):
        blank = not line or line.isspace()
        if not blank:
            held.append(line)
            size += len(line)
        if held and ((blank and not whole) or size >= MAX_DOCUMENT_CHARACTERS):
            yield "\n".join(held)
            held = []
            size = 0
    yield "\n".join(held)


def _json_lines(file: Path, reading: ReaderConfig, problems: RowProblems | None) -> Iterator[str]:
    field = reading.text_field
    known = False
    # The field's name is only known at run time. A struct of this field skips all others unread: a
    # row of 20 words and five fields takes 2.3 us, and 3.3 us where it is decoded to a dict.
    row = msgspec.defstruct("Row", [("text", str, msgspec.field(name=field))])
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(row)
    for number, line in enumerate(read_lines(file, rows=True), 1):
        if line and not line.isspace():
            try:
                text: str = decoder.decode(line).text
                text.encode()
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                bad = _bad_row(file, number, line, field, error)
                # where the first row lacks the field, its name is wrong
                if problems is None or (isinstance(bad, UsageError) and not known):
                    raise bad from error
                problems.add(RowError(bad.what, bad.hint))
                continue
            known = True
            yield text


def _bad_row(file: Path, number: int, line: str, field: str, error: Exception) -> ZooError:
    """Return the error that describes an invalid line of JSON."""
    location = f"{file}, line {number}"
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as fault:
        reason = "it is nested too deeply" if isinstance(fault, RecursionError) else error
        return VerificationError(f"{location} is not JSON: {reason}", "each line must be an object")
    if not isinstance(row, dict):
        return VerificationError(f"{location} is not a JSON object", "each line must be one")
    if field not in row:
        return _no_field(location, field, list(map(str, row)))
    return VerificationError(
        f"{location}: {field!r} is not a string: {error}", "leave that row out"
    )


def _no_field(location: str, field: str, known: list[str]) -> UsageError:
    hint = did_you_mean(field, known) or f"it has {', '.join(known[:8]) or 'none'}"
    return UsageError(f"{location} has no field {field!r}", f"{hint}; --text names it")


def _parquet(file: Path, reading: ReaderConfig, _: RowProblems | None) -> Iterator[str]:
    field = reading.text_field
    with open_parquet(file) as table:
        _check_parquet(file, table, field)
    # a dictionary keeps repeated texts once in memory
    options = {"read_dictionary": [field], "pre_buffer": False, "buffer_size": PARQUET_PAGE_BYTES}
    with open_parquet(file, **options) as table:
        batches = table.iter_batches(batch_size=PARQUET_ROWS, columns=[field])
        for number, value in enumerate(chain.from_iterable(b.column(0) for b in batches), 1):
            text = value.as_py()
            if not isinstance(text, str):
                raise VerificationError(
                    f"{file}, row {number}: {field!r} is not a string: {text!r}",
                    "leave that row out",
                )
            yield text


def _check_parquet(file: Path, table: Any, field: str) -> None:
    """Check that a column holds text, and that its size is plausible for the size of the file."""
    from pyarrow import types

    if field not in table.schema_arrow.names:
        raise _no_field(str(file), field, table.schema_arrow.names)
    kind = table.schema_arrow.field(field).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(kind) or types.is_large_string(kind)):
        raise VerificationError(
            f"{file}, row 1: {field!r} is not a string: the column has {str(kind)[:100]}",
            "--text names another",
        )
    metadata = table.metadata
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    total = sum(group.total_byte_size for group in groups)
    check_expansion(file, total, file.stat().st_size)
