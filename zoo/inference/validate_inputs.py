"""Validation of the inputs of a session: names, shapes, and token ids within their tables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from zoo.errors import UsageError
from zoo.families.config import Config
from zoo.families.onnx import OnnxSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.inference.session import Arrays

# Default of an optional input: no padding, one segment, answers in all tokens.
NEUTRAL = {"attention_mask": 1, "token_type_ids": 0, "p_mask": 0}
# Input -> field of the configuration that bounds its values.
TABLE_SIZES = {
    "input_ids": "vocab_size",
    "decoder_input_ids": "vocab_size",
    "character_ids": "characters",
    "token_type_ids": "type_vocab_size",
}


def complete_inputs(
    inputs: "Arrays", spec: OnnxSpec, config: Config
) -> "tuple[dict[str, NDArray[np.int64]], dict[str | int, int]]":
    """Return all inputs after checking them, and the size of each axis.

    Missing inputs have their default; see ``check_inputs``.
    """
    arrays, sizes = check_inputs(inputs, spec, config)
    return _with_defaults(arrays, spec, sizes), sizes


def check_inputs(
    inputs: "Arrays", spec: OnnxSpec, config: Config
) -> "tuple[dict[str, NDArray[np.int64]], dict[str | int, int]]":
    """Return the arrays as contiguous int64, and the size of each axis.

    Arrays have the order of the specification.
    """
    import numpy as np

    sizes: dict[str | int, int] = {}
    for name in inputs:
        if name not in spec.inputs:
            raise UsageError(f"no input is called {name!r}", f"there are {', '.join(spec.inputs)}")
    arrays = {}
    for name, axes in spec.inputs.items():
        if name in inputs:
            array = np.asarray(inputs[name])
            if array.dtype.kind not in "iub":
                raise UsageError(f"the input {name} holds {array.dtype}, not integers")
            values = np.ascontiguousarray(array, np.int64)
            arrays[name] = values if values.flags.writeable else values.copy()
            _check_shape(name, values.shape, axes, spec.limits, sizes)
            _check_values(name, values, config)
        elif name not in NEUTRAL:
            raise UsageError(f"the input {name} is missing", "it has no default")
    return arrays, sizes


def _check_values(name: str, values: "NDArray[np.int64]", config: Config) -> None:
    """Check that values are rows of their table."""
    import numpy as np

    table_size = getattr(config, TABLE_SIZES.get(name, ""), None)
    # As an unsigned number, a negative one is larger than all others.
    if table_size is None:
        return
    if int(np.maximum.reduce(values.view(np.uint64), axis=None)) < table_size:
        return
    low = int(values.min())
    wrong_value = low if low < 0 else int(values.max())
    raise UsageError(
        f"the input {name} holds {wrong_value}, where values from 0 to {table_size - 1} are"
    )


def with_defaults(
    arrays: "Mapping[str, NDArray[np.int64]]", spec: OnnxSpec
) -> "dict[str, NDArray[np.int64]]":
    """Return all inputs, missing ones filled with their default."""
    sizes: dict[str | int, int] = {}
    for name, array in arrays.items():
        sizes.update(zip(spec.inputs[name], array.shape, strict=True))
    return _with_defaults(arrays, spec, sizes)


def _with_defaults(
    arrays: "Mapping[str, NDArray[np.int64]]", spec: OnnxSpec, sizes: Mapping[str | int, int]
) -> "dict[str, NDArray[np.int64]]":
    import numpy as np

    inputs = {}
    for name, axes in spec.inputs.items():
        if name in arrays:
            inputs[name] = arrays[name]
        else:
            shape = [axis if isinstance(axis, int) else sizes[axis] for axis in axes]
            array = np.empty(shape, np.int64)
            array.fill(NEUTRAL[name])
            inputs[name] = array
    return inputs


def check_outputs(requested: Sequence[str] | None, outputs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the outputs to compute, by default all."""
    for name in requested or ():
        if name not in outputs:
            raise UsageError(f"no output is called {name!r}", f"there are {', '.join(outputs)}")
    if requested is None:
        return outputs
    return tuple(requested)


def _check_shape(
    name: str,
    shape: tuple[int, ...],
    axes: tuple[str | int, ...],
    limits: Mapping[str, int],
    sizes: dict[str | int, int],
) -> None:
    """Check the shape of an input, and that an axis has the same size in all inputs."""
    if len(shape) != len(axes):
        expected_shape = ", ".join(map(str, axes))
        raise UsageError(f"the input {name} has the shape {shape}, not ({expected_shape})")
    for axis, size in zip(axes, shape, strict=True):
        if isinstance(axis, int):
            if size != axis:
                raise UsageError(
                    f"the input {name} has {size} values per token, and {axis} are needed"
                )
            continue
        if size < 1:
            raise UsageError(f"the input {name} has no {axis}: its shape is {shape}")
        if size > limits.get(axis, size):
            raise UsageError(
                f"the input {name} has {size} {axis}, where the model takes at most {limits[axis]}",
                "cut it",
            )
        if sizes.setdefault(axis, size) != size:
            raise UsageError(f"the input {name} has {size} {axis}, another one {sizes[axis]}")
