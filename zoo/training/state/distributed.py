"""Weights and optimizer of a run that is split over processes, each of which writes its part.

``torch.distributed.checkpoint`` does the work, with its storage for safetensors: what is written
holds no pickle, and is read by any number of processes.
"""

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

Tensors = dict[str, torch.Tensor]


def save_shards(folder: Path, groups: Mapping[str, Tensors]) -> None:
    """Write this process's part of some tensors; all processes must call it.

    Args:
        folder: to write.
        groups: group -> tensors by name.

    Raises:
        OSError: the disk is full, or cannot be written, for one of the processes.
    """
    with _plain():
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        save(_flat(groups), storage_writer=writer)


def load_shards(folder: Path, groups: Mapping[str, Tensors]) -> None:
    """Read what was saved into tensors of the same names; all processes must call it."""
    with _plain():
        reader = HuggingFaceStorageReader(str(folder))
        load(_flat(groups), storage_reader=reader)


def _flat(groups: Mapping[str, Tensors]) -> Tensors:
    """Return all tensors by ``group/name``; a scalar as the view of it that the format can hold."""
    return {
        f"{group}/{name}": tensor if tensor.dim() else tensor.view(1)
        for group, tensors in groups.items()
        for name, tensor in tensors.items()
    }


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    """Nothing is said of being used by a single process, which is meant; errors are those of the
    first process that failed, where the library's are of a kind that nothing handles.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            yield
        except CheckpointException as error:
            (cause, _), *_ = error.failures.values()
            raise cause from error
