"""Checkpoints of any size in sparse files."""

import json
from pathlib import Path
from typing import Any

from zoo.io.tensors.formats import TensorInfo
from zoo.io.tensors.safetensors import header_bytes
from zoo.plugins import get_family

CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "num_attention_heads": 16,
    "max_position_embeddings": 512,
}


def sparse_checkpoint(
    path: Path, *, shard_bytes: int = 1 << 60, dtype: str = "F32", **changes: Any
) -> int:
    """Write a BERT with zero weights in shards; return the size of its weights in bytes."""
    path.mkdir()
    hub = {**CONFIG, **changes}
    (path / "config.json").write_text(json.dumps(hub))
    family = get_family("bert")
    rules = family.weights(family.from_hub(hub).config, "none")
    tensors = {
        rules.written(name): TensorInfo(dtype, shape)
        for entry in rules.entries()
        for name, shape in zip(entry.sources, entry.source_shapes, strict=True)
    }
    shards: list[dict[str, TensorInfo]] = [{}]
    for name, info in tensors.items():
        if shards[-1] and sum(i.nbytes for i in shards[-1].values()) + info.nbytes > shard_bytes:
            shards.append({})
        shards[-1][name] = info
    names = [f"model-{k + 1:05d}-of-{len(shards):05d}.safetensors" for k in range(len(shards))]
    names = names if len(shards) > 1 else ["model.safetensors"]
    for file, shard in zip(names, shards, strict=True):
        _write(path / file, shard)
    if len(shards) > 1:
        files = {
            tensor: file for file, shard in zip(names, shards, strict=True) for tensor in shard
        }
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return sum(info.nbytes for info in tensors.values())


def _write(path: Path, tensors: dict[str, TensorInfo]) -> None:
    header = header_bytes(tensors, {"format": "pt"})
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + sum(info.nbytes for info in tensors.values()))
