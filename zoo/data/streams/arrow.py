"""Arrow files, as ``Dataset.save_to_disk`` of the library datasets writes them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo.data.readers.documents import ReaderConfig, missing_field
from zoo.data.streams.shards import Segment, Shard, StreamRow, require_text, segments_of_parts
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.files import open_regular
from zoo.io.json import read_json_object
from zoo.overrides import override

ARROW = ".arrow"
STATE = "state.json"
DATASET_DICT = "dataset_dict.json"
MAGIC = b"ARROW1"  # The first bytes of a file with an index of its batches.


class ArrowShard(Shard):
    """A stream or a file of record batches; a segment is a batch, or several small ones."""

    @override
    def check(self, reader: ReaderConfig) -> None:
        from pyarrow import types

        field = reader.text_field
        with _open_arrow(self.file) as (schema, _):
            if field not in schema.names:
                raise missing_field(str(self.file), field, schema.names)
            value_type = schema.field(field).type
        if not types.is_string(value_type) and not types.is_large_string(value_type):
            raise VerificationError(
                f"{self.file}, row 1: {field!r} is not a string: the column has "
                f"{str(value_type)[:100]}",
                "--text names another",
            )

    @override
    def segments(self, number: int, target_bytes: int) -> list[Segment]:
        with _open_arrow(self.file) as (_, batches):
            parts = [(batch.num_rows, batch.nbytes) for batch in batches]
        return segments_of_parts(number, parts, target_bytes)

    @override
    def rows(
        self, segment: Segment, row: int, offset: int, reader: ReaderConfig
    ) -> Iterator[StreamRow]:
        field = reader.text_field
        end = 0
        with _open_arrow(self.file) as (_, batches):
            # The file is mapped: batches that are passed over are not read.
            for batch in batches:
                number = end
                end += batch.num_rows
                if end <= row:
                    continue
                if number >= segment.end_row:
                    return
                first = max(row - number, 0)
                values = batch.column(field)[first:]
                number += first
                for value in values:
                    number += 1
                    if number > segment.end_row:
                        return
                    location = f"{self.file}, row {number}"
                    text = require_text(value.as_py(), location, field)
                    yield StreamRow(text, number, 0)


@contextmanager
def _open_arrow(file: Path) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Yield the schema and the batches of a file; an error of pyarrow in the block names it."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise SourceError(
            f"reading {file} takes pyarrow, which is not installed", "pip install pyarrow"
        ) from error
    with open_regular(file) as opened:
        is_indexed = opened.read(len(MAGIC)) == MAGIC
    try:
        with pyarrow.memory_map(str(file)) as source:
            if is_indexed:
                reader = pyarrow.ipc.open_file(source)
                batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
                yield reader.schema, batches
            else:
                stream = pyarrow.ipc.open_stream(source)
                yield stream.schema, iter(stream)
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise VerificationError(f"{file} is damaged: {reason}", "write it again") from error


def dataset_files(folder: Path) -> list[Path] | None:
    """Return the Arrow files of a folder of ``save_to_disk``; ``None`` for other folders."""
    if (folder / DATASET_DICT).is_file():
        splits = read_json_object(folder / DATASET_DICT).get("splits")
        names = ", ".join(map(str, splits)) if isinstance(splits, list) else "none"
        raise UsageError(
            f"{folder} holds the splits {names}", f"name one of their folders, below {folder}"
        )
    if not (folder / STATE).is_file():
        return None
    entries = read_json_object(folder / STATE).get("_data_files")
    if not isinstance(entries, list):
        return None
    files = []
    for entry in entries:
        name = entry.get("filename") if isinstance(entry, dict) else None
        if not isinstance(name, str) or Path(name).name != name:
            raise VerificationError(
                f"{folder / STATE}: {name!r} is not the name of a file", "save the data set again"
            )
        files.append(folder / name)
    _require_equal_columns(files)
    return files


def _require_equal_columns(files: Sequence[Path]) -> None:
    """Check that the files of a data set have the same columns, as the library datasets does."""
    first_columns: dict[str, str] = {}
    for number, file in enumerate(files):
        with _open_arrow(file) as (schema, _):
            columns = {field.name: str(field.type)[:100] for field in schema}
        if number == 0:
            first_columns = columns
        for name in dict.fromkeys([*first_columns, *columns]):
            column_type = columns.get(name)
            first_type = first_columns.get(name)
            if column_type == first_type:
                continue
            what = f"the column {name!r} of {file} is {column_type}"
            if column_type is None:
                what = f"{file} has no column {name!r}"
            expected = f"in {files[0]} it is {first_type}"
            if first_type is None:
                expected = f"{files[0]} does not have it"
            raise VerificationError(f"{what}, and {expected}", "save the data set again")
