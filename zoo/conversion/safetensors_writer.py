"""Writing of ``model.safetensors``, one tensor at a time, in shards of bounded size."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from zoo.checkpoint import WEIGHTS, WEIGHTS_INDEX
from zoo.io.json import encode_json
from zoo.io.progress import Advance
from zoo.io.tensors.file_range import copy_range, file_range_of
from zoo.io.tensors.formats import TensorToWrite
from zoo.io.tensors.safetensors import header_bytes, write_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.tensors.file_array import FileArray

    Array = NDArray[np.generic[Any]] | FileArray

Create = Callable[[Path], AbstractContextManager[BinaryIO]]

SHARD_BYTES = 5_000_000_000  # as huggingface_hub does


def create(path: Path) -> BinaryIO:
    """Open a new file for writing."""
    return path.open("wb")


def write_weights(
    directory: Path,
    outputs: Sequence[TensorToWrite],
    advance: Advance,  # called with the number of bytes written
    *,
    metadata: Mapping[str, str],
    create: Create = create,
    shard_bytes: int = SHARD_BYTES,
) -> list[Path]:
    """Write tensors to ``model.safetensors``, or to shards with an index; return the paths."""
    # Implemented here because the safetensors package needs all tensors in memory; this writer
    # takes one at a time, so that a model may be larger than memory, and hashes files while writing
    # them.
    shards = [list[TensorToWrite]()]
    size = 0
    for out in outputs:
        if shards[-1] and size + out.info.nbytes > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(out)
        size += out.info.nbytes
    names = [f"model-{k + 1:05d}-of-{len(shards):05d}.safetensors" for k in range(len(shards))]
    if len(shards) == 1:
        names = [WEIGHTS]
    for name, shard in zip(names, shards, strict=True):
        with create(directory / name) as file:
            _write_shard(file, shard, advance, metadata)
    if len(shards) == 1:
        return [directory / WEIGHTS]
    weight_map = {o.name: name for name, shard in zip(names, shards, strict=True) for o in shard}
    index = {
        "metadata": {"total_size": sum(out.info.nbytes for out in outputs)},
        "weight_map": weight_map,
    }
    (directory / WEIGHTS_INDEX).write_bytes(encode_json(index))
    return [*(directory / name for name in names), directory / WEIGHTS_INDEX]


def _write_shard(
    file: BinaryIO, outputs: Sequence[TensorToWrite], advance: Advance, metadata: Mapping[str, str]
) -> None:
    file.write(header_bytes({out.name: out.info for out in outputs}, metadata))
    for out in outputs:
        for piece in out.chunks():
            if (span := file_range_of(piece)) is not None:
                file.flush()
                # bytes that are unchanged in a source file are copied by the kernel
                if copy_range(span, file.fileno()):
                    file.seek(0, os.SEEK_END)
                    continue
            write_chunks(file, (piece,))
        advance(out.info.nbytes)
