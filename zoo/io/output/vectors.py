"""Names under which the record of vectors is stored."""

from pathlib import Path

ARRAY = ".npy"
METADATA_KEY = b"zoo.vectors"  # Key of the record in the metadata of Parquet.


def record_of(path: Path) -> Path:
    """Return the path of the record of an array, which has no room for it."""
    return path.with_name(f"{path.name}.json")
