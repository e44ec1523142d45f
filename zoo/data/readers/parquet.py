"""Opening of Parquet files, which takes the extra ``parquet``."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo.errors import SourceError, VerificationError
from zoo.io.files import open_regular
from zoo.io.limits import MAX_PARQUET_ITEMS

PARQUET = ".parquet"


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
        why = " ".join(str(error).split())[:200]
        raise VerificationError(
            f"{file} is not a Parquet file: {why}", "download it again"
        ) from error
