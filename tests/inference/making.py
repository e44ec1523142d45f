"""Tiny checkpoints in the zoo's layout, made without a conversion."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn

from zoo.checkpoint import (
    CONFIG,
    FORMAT_VERSION,
    MANIFEST,
    WEIGHTS,
    Checkpoint,
    Manifest,
    ModelFile,
    SourceRecord,
    encode_manifest,
    load_checkpoint,
)
from zoo.families.base import Family
from zoo.families.random_inputs import randomize_weights
from zoo.io.digests.files import hash_file
from zoo.io.json import encode_json
from zoo.plugins import get_family

SHAPE = {"vocab_size": 300, "max_positions": 40, "hidden_size": 64, "intermediate_size": 96}
LABELS = ("red", "green", "blue")


def make_checkpoint(
    path: Path,
    head: str = "none",
    *,
    dtype: torch.dtype = torch.float32,
    family: Family | None = None,
    **changes: Any,
) -> Checkpoint:
    """Write a model with random weights, also of biases and norms."""
    family = family or get_family("bert")
    tiny: Any = family.sizes()["tiny"]
    shape = {name: size for name, size in SHAPE.items() if hasattr(tiny, name)}
    fields = {**shape, "labels": LABELS, "dropout": 0.5, **changes}
    config = msgspec.structs.replace(tiny, **fields)
    model = family.model(config, head)
    randomize_weights(model, seed=1)
    return store(path, model.to(dtype), family, config, head)


def store(path: Path, model: nn.Module, family: Family, config: Any, head: str) -> Checkpoint:
    """Write a model as a checkpoint."""
    path.mkdir(parents=True)
    save_file(model.state_dict(), path / WEIGHTS)
    described = ModelFile(
        zoo=FORMAT_VERSION, family=family.name, head=head, config=msgspec.to_builtins(config)
    )
    (path / CONFIG).write_bytes(encode_json(described))
    write_manifest(path)
    return load_checkpoint(path)


def write_manifest(path: Path) -> None:
    """Write the manifest for the current files."""
    manifest = Manifest(
        zoo=FORMAT_VERSION,
        created_by={"tests": "0"},
        files={
            str(file.relative_to(path)): hash_file(file)
            for file in path.rglob("*")
            if file.is_file() and file.name != MANIFEST
        },
        source=SourceRecord(reference="random", repo="nobody/nothing", revision="0" * 40),
        licence="apache-2.0",
    )
    (path / MANIFEST).write_bytes(encode_manifest(manifest))


def draw_batch(lengths: list[int], tokens: int = 0, seed: int = 0) -> dict[str, NDArray[np.int64]]:
    """Return a random batch whose rows have the given numbers of tokens besides padding."""
    random = np.random.default_rng(seed)
    shape = (len(lengths), tokens or max(lengths))
    mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
    return {
        "input_ids": random.integers(1, SHAPE["vocab_size"], shape) * mask,
        "attention_mask": mask,
        "token_type_ids": random.integers(0, 2, shape) * mask,
    }
