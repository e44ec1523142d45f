"""Tiny checkpoints in ELMo's release format, made from the golden files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py

from zoo.conformance.golden import Golden

GOLDEN = Path(__file__).parents[1] / "golden" / "elmo"


def published(path: Path, case: str = "none", **options: Any) -> tuple[Path, Golden]:
    """Write weights and options of a golden file in the format of the released models."""
    golden = Golden.read(GOLDEN / f"{case}.safetensors")
    write(path, golden, **options)
    return path, golden


def published_lowest_layer(path: Path) -> tuple[Path, Golden]:
    """Write a model that has the lowest of two LSTM layers; its golden file has no outputs."""
    golden = Golden.read(GOLDEN / "none-plain.safetensors")
    lstm = golden.hub_config["lstm"] | {"n_layers": 1}
    lowest = replace(
        golden,
        hub_config=golden.hub_config | {"lstm": lstm},
        weights={name: array for name, array in golden.weights.items() if "Cell1" not in name},
        outputs={},
    )
    write(path, lowest)
    return path, lowest


def write(path: Path, golden: Golden, **options: Any) -> None:
    path.mkdir()
    (path / "small_options.json").write_text(json.dumps(golden.hub_config | options))
    with h5py.File(path / "small_weights.hdf5", "w") as file:
        for name, array in golden.weights.items():
            file.create_dataset(name, data=array)
