"""The settings in a model of CTranslate2, which must be those of its checkpoint.

The runtime trusts them: with another number of heads it divides by zero, or reads other memory.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from zoo.checkpoint import Checkpoint
from zoo.errors import VerificationError
from zoo.families.runtimes import RuntimeModel
from zoo.io.files import open_regular
from zoo.io.limits import MAX_TENSORS
from zoo.io.sizes import check_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

# As ``ctranslate2.specs.model_spec`` writes it: the version, name and revision of the layout, the
# number of variables, and for each its name, shape, type and bytes.
MODEL = "model.bin"
STACKS = ("encoder", "decoder")
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
LEAST_BYTES = struct.calcsize("<HBBI")  # of a variable
MAX_SCALAR_BYTES = 4


def check_settings(folder: Path, checkpoint: Checkpoint) -> None:
    """Raise an error if a model has other heads than its checkpoint, or damaged settings."""
    # The package's own specifications, which would say more, import torch.
    file = folder / MODEL
    heads = _heads(checkpoint)
    for name, value in read_scalars(file).items():
        if value is None:
            raise VerificationError(f"{file}: {name} is not a number", "export it again")
        stack, _, setting = name.partition("/")
        if setting == "num_heads" and (value.dtype.kind != "i" or value != heads.get(stack)):
            raise VerificationError(
                f"{file}: {name} is {value}, and the checkpoint has {heads.get(stack, 'none')}",
                "export it again",
            )


def _heads(checkpoint: Checkpoint) -> dict[str, int]:
    """Return the number of attention heads of each stack."""
    model = checkpoint.family.runtime_model("ctranslate2", checkpoint.config, checkpoint.head_name)
    assert isinstance(model, RuntimeModel), "the target holds the model"
    heads = model.settings["num_heads"]
    if isinstance(heads, Sequence):  # of an encoder and a decoder
        return dict(zip(STACKS, heads, strict=True))
    return dict.fromkeys(STACKS, heads)


def read_scalars(file: Path) -> "dict[str, NDArray[Any] | None]":
    """Return the variables of a model without axes; ``None`` for one of a type without numbers."""
    with open_regular(file) as source:
        try:
            return dict(_scalars(file, source))
        except (struct.error, UnicodeDecodeError) as error:
            raise VerificationError(f"{file} is damaged: {error}", "export it again") from error


def _scalars(file: Path, source: BinaryIO) -> "Iterator[tuple[str, NDArray[Any] | None]]":
    size = source.seek(0, 2)
    source.seek(0)
    _read(source, "<I")
    source.seek(_read(source, "<H") + struct.calcsize("<I"), 1)
    count = _read(source, "<I")
    check_size(file, "number of variables", count, MAX_TENSORS, room=size // LEAST_BYTES)
    for _ in range(count):
        name = source.read(_read(source, "<H")).removesuffix(b"\0").decode()
        axes = _read(source, "<B")
        source.seek(axes * struct.calcsize("<I"), 1)
        type_number = _read(source, "<B")
        length = _read(source, "<I")
        check_size(file, f"length of {name:.100}", length, size, room=size - source.tell())
        content = source.read(min(length, MAX_SCALAR_BYTES))
        source.seek(length - len(content), 1)
        if axes == 0:
            yield name, _number(type_number, content, length)


def _read(source: BinaryIO, layout: str) -> int:
    (number,) = struct.unpack(layout, source.read(struct.calcsize(layout)))
    return int(number)


def _number(type_number: int, content: bytes, length: int) -> "NDArray[Any] | None":
    if type_number >= len(TYPES) or TYPES[type_number] == "bfloat16":
        return None
    dtype = np.dtype(TYPES[type_number])
    return np.frombuffer(content, dtype)[0] if length == dtype.itemsize else None
