"""Opening of Parquet files, which takes the extra ``parquet``, and names of their classes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo.data.readers.problems import RowError
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.files import open_regular
from zoo.io.json import parse_json
from zoo.io.limits import MAX_PARQUET_ITEMS

PARQUET = ".parquet"
DATASETS_KEY = b"huggingface"  # The key of the metadata that the library datasets writes.
NO_CLASS = -1  # The class of a row without a label.


def rows_of_batch(file: Path, batch: Any) -> list[dict[str, Any]]:
    """Return the rows of a ``pyarrow.RecordBatch`` as values of Python."""
    import pyarrow

    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (pyarrow.ArrowException, UnicodeError):  # The file is damaged; see ``open_parquet``.
        raise
    except ValueError as error:  # Python has no such value, such as a time in nanoseconds.
        reason = str(error).partition(". ")[0]
        raise UsageError(f"{file}: {reason}", "cast the column to microseconds or text") from error
    return rows


class ClassName(str):
    """Name of a class that a Parquet file stores as a number."""

    number: int

    @classmethod
    def with_number(cls, name: str, number: int) -> "ClassName":
        """Return the name of the class with a number."""
        class_name = cls(name)
        class_name.number = number
        return class_name


class ClassColumns:
    """Columns of integers whose names are in the metadata that the library datasets writes."""

    # ``{"info": {"features": {COLUMN: FEATURE}}}``, where a feature is
    # ``{"names": [...], "_type": "ClassLabel"}``, or has such features in it: ``{"feature": ...}``
    # or ``[...]`` for a list, and an object of features for a struct.

    def __init__(self, file: Path, metadata: Mapping[bytes, bytes] | None) -> None:
        self._features = dict[str, Any]()
        content = (metadata or {}).get(DATASETS_KEY)
        if content is None:
            return
        value = parse_json(content, f"{file}: the metadata of datasets")
        for key in ("info", "features"):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, dict):
            for name, feature in value.items():
                if _has_classes(feature):
                    self._features[name] = _with_names(feature, f"{file}: {name}")

    def decode(self, row: dict[str, Any], location: str) -> dict[str, Any]:
        """Return a row with names in place of the numbers of classes."""
        names = self._features.keys() & row.keys()
        if not names:
            return row
        decoded = dict(row)
        for name in names:
            decoded[name] = _decode(self._features[name], row[name], f"{location}: {name}")
        return decoded


def _has_classes(feature: Any) -> bool:
    if isinstance(feature, list):
        return any(map(_has_classes, feature))
    if not isinstance(feature, dict):
        return False
    return feature.get("_type") == "ClassLabel" or any(map(_has_classes, feature.values()))


def _with_names(feature: Any, location: str) -> Any:
    """Return a feature with tuples of ``ClassName`` in place of those of classes."""
    if isinstance(feature, list):
        return [_with_names(item, location) for item in feature]
    if not isinstance(feature, dict):
        return feature
    if feature.get("_type") != "ClassLabel":
        return {key: _with_names(value, location) for key, value in feature.items()}
    names = feature.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise VerificationError(
            f"{location} is a ClassLabel without names in the metadata of datasets",
            "write the file again, with names of the classes or without the metadata",
        )
    return tuple(ClassName.with_number(name, number) for number, name in enumerate(names))


def _decode(feature: Any, value: Any, location: str) -> Any:
    """Return a value of a row with names in place of the numbers of classes."""
    if isinstance(value, list):
        item_feature = feature
        if isinstance(feature, dict):
            item_feature = feature.get("feature", feature)
        elif isinstance(feature, list) and feature:
            item_feature = feature[0]
        return [_decode(item_feature, item, location) for item in value]
    if isinstance(value, dict) and isinstance(feature, dict):
        fields = feature.get("feature", feature)
        if not isinstance(fields, dict):
            fields = {}
        return {key: _decode(fields.get(key), item, location) for key, item in value.items()}
    if not isinstance(feature, tuple) or type(value) is not int:
        return value
    if value == NO_CLASS:
        return None
    if not 0 <= value < len(feature):
        raise RowError(
            f"{location} is {value}, and the metadata of datasets names {len(feature)} classes",
            "correct the row, or the metadata",
        )
    return feature[value]


@contextmanager
def open_parquet(file: Path, **options: Any) -> Iterator[Any]:
    """Yield a ``pyarrow.parquet.ParquetFile``; an error of pyarrow in the block names the file."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise SourceError(
            f"reading {file} takes pyarrow, which is not installed",
            "pip install pyarrow",
        ) from error
    limits = ("thrift_string_size_limit", "thrift_container_size_limit")
    options |= dict.fromkeys(limits, MAX_PARQUET_ITEMS)
    try:
        with open_regular(file) as source:
            yield pyarrow.parquet.ParquetFile(source, **options)
    except (pyarrow.ArrowException, OSError, UnicodeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise VerificationError(
            f"{file} is not a Parquet file: {reason}", "download it again"
        ) from error
