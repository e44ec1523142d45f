"""Sharded checkpoints by ``torch.distributed.checkpoint``, in the safetensors format."""

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

Tensors = dict[str, torch.Tensor]


def save_shards(folder: Path, groups: Mapping[str, Tensors]) -> None:
    """Write this process's part of sharded tensors; all processes must call it."""
    # Each process writes its part; any number of processes can read the result, and no pickle is
    # used. The library is imported on first use: it takes seconds.
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    with _library_errors():
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        save(_flat(groups), storage_writer=writer)


def load_shards(folder: Path, groups: Mapping[str, Tensors]) -> None:
    """Load sharded tensors in place; all processes must call it."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    with _library_errors():
        reader = HuggingFaceStorageReader(str(folder))
        load(_flat(groups), storage_reader=reader)


def shard_names(folder: Path) -> set[str]:
    """Return the names ``group/name`` of the tensors in a directory that ``save_shards`` wrote."""
    from safetensors import safe_open

    names: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names.update(file.keys())
    return names


def _flat(groups: Mapping[str, Tensors]) -> Tensors:
    """Return all tensors by ``group/name``; a scalar as a view of shape (1,)."""
    flat: Tensors = {}
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            if tensor.dim() == 0:
                tensor = tensor.view(1)
            flat[f"{group}/{name}"] = tensor
    return flat


@contextlib.contextmanager
def _library_errors() -> Iterator[None]:
    """Silence the warning about a single process, and raise the error of the first failed rank."""
    # The library's own exception type wraps one error per rank, which no caller handles.
    from torch.distributed.checkpoint.api import CheckpointException

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            yield
        except CheckpointException as error:
            (cause, _), *_ = error.failures.values()
            raise cause from error
