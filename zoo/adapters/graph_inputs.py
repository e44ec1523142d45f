"""Graphs whose adapter is an input, so that one graph serves many adapters."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from zoo.adapted_models.checkpoint import (
    AdaptedCheckpoint,
    adapter_file,
    adapter_record,
    require_finite_tensors,
)
from zoo.adapted_models.exported import AdapterInputs
from zoo.checkpoint import MANIFEST, Checkpoint
from zoo.errors import UsageError
from zoo.io.paths import safe_join

if TYPE_CHECKING:
    import onnx_ir as ir

FOLDER = "adapters"  # An export has a directory for each adapter in it.


def check_adapters(
    checkpoints: Sequence[Checkpoint],
    *,
    dtype: str,
    generates: bool,
    other_options: Mapping[str, Any],
) -> AdapterInputs:
    """Return the inputs of the graph, after checking that all adapters fit them.

    Args:
        checkpoints: models with an adapter.
        dtype: the dtype that was asked for.
        generates: whether the graph generates text.
        other_options: options that such a graph does not have -> their values.
    """
    adapters = []
    for checkpoint in checkpoints:
        if not isinstance(checkpoint, AdaptedCheckpoint) or len(checkpoint.adapters) != 1:
            raise UsageError("--adapter-inputs needs a model with an adapter", "give --adapter DIR")
        adapters.append(checkpoint.adapters[0])
    first_adapter = adapters[0]
    inputs = AdapterInputs.from_adapter(first_adapter, adapter_record(first_adapter))
    for adapter in adapters[1:]:
        difference = inputs.difference(AdapterInputs.from_adapter(adapter, adapter_record(adapter)))
        if difference is not None:
            raise UsageError(
                f"one graph does not take both {first_adapter.path} and {adapter.path}: "
                f"{difference}",
                "export them one by one",
            )
    _require_one_tokenizer(checkpoints)
    names = adapter_names(checkpoints)
    if len(set(names)) < len(names):
        raise UsageError(
            f"two adapters are called {max(names, key=names.count)}", "rename a directory"
        )
    if dtype != "float32":
        raise UsageError(
            f"--adapter-inputs makes graphs in float32, not in {dtype}", "leave --dtype out"
        )
    if generates:
        raise UsageError(
            "a graph that generates has no inputs for an adapter",
            "add --no-cache, or leave --adapter-inputs out",
        )
    for option, value in other_options.items():
        if value:
            raise UsageError(f"--adapter-inputs and {option} make different graphs", "give one")
    return inputs


def _require_one_tokenizer(checkpoints: Sequence[Checkpoint]) -> None:
    """Check that all models read texts with the same tokenizer."""
    tokenizers = set()
    for checkpoint in checkpoints:
        if checkpoint.tokenizer_file.is_file():
            tokenizers.add(checkpoint.tokenizer_file.read_bytes())
    if len(tokenizers) > 1:
        raise UsageError(
            "one graph reads texts with one tokenizer, and the adapters have different ones",
            "export them one by one",
        )


def adapter_names(adapters: Sequence[Checkpoint]) -> list[str]:
    """Return the names of adapters: of their directories, or of the run that made them."""
    paths = [Path(os.path.abspath(adapter.path)) for adapter in adapters]
    return [path.parent.name if path.name == "model" else path.name for path in paths]


def adapter_arrays(adapter: Checkpoint) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of an adapter by the names of the graph's inputs."""
    file = adapter_file(adapter)
    tensors = load_file(file)
    require_finite_tensors(tensors, file)
    return {name: array.astype(np.float32) for name, array in tensors.items()}


def write_adapters(adapters: Sequence[Checkpoint], export: Path) -> None:
    """Copy adapters into an export."""
    for name, adapter in zip(adapter_names(adapters), adapters, strict=True):
        target = export / FOLDER / name
        # The files of modules of sentence encoders are among them.
        for file in (*adapter.manifest.files, MANIFEST):
            copy = safe_join(target, file, str(adapter.path / MANIFEST))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(adapter.path / file, copy)


def as_inputs(model: "ir.Model", names: Sequence[str]) -> "dict[str, ir.Value]":
    """Make tensors of a graph inputs without a value, in place."""
    graph = model.graph
    inputs = {}
    for name in names:
        value = graph.initializers.pop(name, None)
        if value is None:
            raise UsageError(f"the graph does not read {name} of the adapter")
        value.const_value = None
        inputs[name] = value
        graph.inputs.append(value)
    return inputs


def set_defaults(
    model: "ir.Model", values: "Mapping[str, ir.Value]", arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Give inputs of a graph a value that they have if they are not given, in place."""
    import onnx_ir as ir

    for name, value in values.items():
        value.const_value = ir.tensor(arrays[name], name=name)
        model.graph.register_initializer(value)
