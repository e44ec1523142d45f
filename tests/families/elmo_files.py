"""Tiny checkpoints in ELMo's release format, made from the golden files."""

import json
from pathlib import Path
from typing import Any

import h5py

from zoo.conformance.golden import Golden

GOLDEN = Path(__file__).parents[1] / "golden" / "elmo"


def published(path: Path, case: str = "none", **options: Any) -> tuple[Path, Golden]:
    """Write weights and options of a golden file in the format of the released models."""
    golden = Golden.read(GOLDEN / f"{case}.safetensors")
    path.mkdir()
    (path / "small_options.json").write_text(json.dumps(golden.hub_config | options))
    with h5py.File(path / "small_weights.hdf5", "w") as file:
        for name, array in golden.weights.items():
            file.create_dataset(name, data=array)
    return path, golden
