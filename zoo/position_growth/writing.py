"""Tensors and files of models with more positions, and the check of their outputs."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.checkpoint import CONFIG, TOKENIZER, Checkpoint, ModelFile
from zoo.conversion.dtypes import numpy_dtype
from zoo.errors import VerificationError
from zoo.families.random_inputs import random_inputs
from zoo.io.json import encode_json
from zoo.io.tensors.formats import STORAGE, TensorInfo, TensorReader, TensorToWrite
from zoo.sentence_models.module_weights import module_weight_files
from zoo.weights.position_tables import grow_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Largest difference between outputs for short texts, as a fraction of the largest magnitude.
TOLERANCE = 1e-5
ROW_LENGTHS = (12, 7)  # Tokens of the rows that both models read.


def copied_tensor(reader: TensorReader, name: str, source: str) -> TensorToWrite:
    """Return a tensor to write that has the values of a tensor of the old model."""
    return TensorToWrite(name, reader.tensors[source], lambda: [reader.lazy(source)])


def grown_table(
    reader: TensorReader, name: str, *, special_rows: int, count: int, method: str = "repeat"
) -> TensorToWrite:
    """Return a table of positions to write; for the arguments, see ``grow_positions``."""
    info = reader.tensors[name]
    shape = (special_rows + count, *info.shape[1:])

    def chunks() -> "Iterator[NDArray[Any]]":
        table = reader.read(name).view(numpy_dtype(info.dtype))
        grown = grow_positions(table, count, special_rows=special_rows, method=method)
        yield np.ascontiguousarray(grown).view(STORAGE[info.dtype])

    return TensorToWrite(name, TensorInfo(info.dtype, shape), chunks)


def write_side_files(staging: Path, checkpoint: Checkpoint, model: ModelFile) -> None:
    """Write ``config.json``, and copy the tokenizer and the weights of sentence modules.

    Args:
        staging: the directory of the new model.
        checkpoint: the old model.
        model: contents of ``config.json``.
    """
    (staging / CONFIG).write_bytes(encode_json(model))
    names = [*module_weight_files(checkpoint.model.pooling)]
    if checkpoint.model.tokenizer is not None:
        names.append(TOKENIZER)
    for name in names:
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint.path / name, staging / name)


def require_same_outputs(
    old: Checkpoint, new: Checkpoint, lengths: Sequence[int] = ROW_LENGTHS
) -> None:
    """Check that both models compute the same for rows of a few tokens.

    Raises:
        VerificationError: an output differs.
    """
    import torch

    from zoo.inference.load_model import load_model

    spec = old.family.onnx(old.config, old.head_name)
    longest = min([*lengths, *spec.limits.values()])
    inputs = random_inputs(spec, old.config, [min(length, longest) for length in lengths])
    outputs = []
    for checkpoint in (old, new):
        model: Any = load_model(checkpoint, torch.float32)
        with torch.inference_mode():
            outputs.append(model(**inputs))
    mask = inputs["attention_mask"]
    old_outputs, new_outputs = outputs
    for name, expected in old_outputs.items():
        values = new_outputs[name]
        if expected.shape[: mask.dim()] == mask.shape:
            expected = expected[mask > 0]
            values = values[mask > 0]
        difference = float((values - expected).abs().max() / expected.abs().max().clamp(min=1e-9))
        if not difference <= TOLERANCE:
            raise VerificationError(
                f"{name} of the new model differs by {difference:.1e} for texts of "
                f"{longest} tokens",
                "nothing was written",
            )
