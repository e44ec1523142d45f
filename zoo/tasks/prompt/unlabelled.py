"""Reader of texts without labels."""

from collections.abc import Sequence
from pathlib import Path

from zoo.data.readers.documents import expand_paths
from zoo.data.readers.labelled import Columns
from zoo.data.readers.tables import read_rows
from zoo.errors import UsageError
from zoo.inference.processing.records import TextExample


def read_unlabelled(paths: Sequence[str | Path], columns: Columns) -> list[TextExample]:
    """Return the texts of tables, which need no column of labels."""
    names = [columns.text, *([] if columns.pair is None else [columns.pair])]
    records = []
    for file in expand_paths(list(map(str, paths))):
        for row in read_rows(Path(file), names):
            text, *other_texts = map(row.text, names)
            pair = other_texts[0] if other_texts else None
            records.append(TextExample(text, pair, location=row.location))
    if not records:
        raise UsageError(f"{', '.join(map(str, paths))}: there are no texts", "give other files")
    return records
