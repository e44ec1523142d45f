"""Parquet files."""

import json
from pathlib import Path
from typing import Any

import pytest

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def class_label(*names: str) -> dict[str, Any]:
    return {"names": list(names), "_type": "ClassLabel"}


def write_parquet(path: Path, columns: dict[str, Any], features: Any = None) -> Path:
    """Write a file with the metadata that ``datasets.Dataset.to_parquet`` writes."""
    table = pyarrow.table(columns)
    if features is not None:
        metadata = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": metadata})
    parquet.write_table(table, path)
    return path
