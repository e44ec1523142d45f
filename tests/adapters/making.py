"""Adapters with random tensors, without a training run."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from zoo.adapted_models.registry import adapter_settings, parse_adapter
from zoo.adapted_models.targets import AdaptableModel
from zoo.adapted_models.write import base_record, write_adapter
from zoo.checkpoint import MANIFEST, AdapterRecord, Checkpoint, Manifest, encode_manifest
from zoo.inference.load_model import load_model
from zoo.io.digests.files import hash_file
from zoo.io.json import read_json_record


def write_random_adapter(
    base: Checkpoint, path: Path, *, with_head: bool = False, **settings: Any
) -> Path:
    """Write an adapter with random tensors; ``with_head`` adds a head that differs from the base's.

    Args:
        settings: name of the method, as ``method``, and its settings.
    """
    model = load_model(base)
    adaptable = AdaptableModel.from_model(model, base.family, base.config, base.head_name)
    before = dict(model.state_dict())
    method = parse_adapter(settings).resolved(adaptable)
    method.add_to(model, adaptable)
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name not in before:
            noise = torch.randn(tensor.shape, generator=generator) * 0.3
            grows = "ia3" in name or "magnitude" in name
            tensors[name] = tensor * (1 + noise) if grows else noise
    if with_head:
        backbone = {entry.target for entry in base.family.weights(base.config, "none").entries()}
        for entry in base.weights.entries():
            if entry.target not in backbone:
                tensors[entry.target] = before[entry.target] * 1.5
    record = AdapterRecord(adapter_settings(method), base_record(str(base.path), base))
    write_adapter(path, base.model, tensors, record, sources=[])
    return path


def change_first_number(path: Path, name: str, value: float) -> None:
    """Change a number of a checkpoint or an adapter, and the digest of the file in its manifest."""
    (file,) = path.glob("*.safetensors")
    tensors = load_file(file)
    tensors[name].flatten()[0] = value
    save_file(tensors, file)
    manifest = read_json_record(path / MANIFEST, Manifest)
    manifest.files[file.name] = hash_file(file)
    (path / MANIFEST).write_bytes(encode_manifest(manifest))
