"""From a torch module to an ONNX program, through ``torch.export``."""

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from zoo.errors import PluginError, VerificationError
from zoo.families.onnx import PAST_TOKENS, OnnxSpec

Example = Mapping[str, Tensor | list[Tensor]]


def trace(model: nn.Module, example: Example, spec: OnnxSpec, opset: int) -> torch.onnx.ONNXProgram:
    """Trace a module with every axis of the specification left open.

    Args:
        model: in evaluation mode.
        example: a small batch with padding, by the names of the module's parameters; a list is
            of the inputs whose names begin with that. Its sizes differ from each other and from
            1, which an exporter would take for a constant.
        spec: names and axes.
        opset: the operator set.

    Raises:
        PluginError: the module does not return what the specification says.
        VerificationError: the exporter fails.
    """
    with torch.inference_mode():
        returned = tuple(model(**example))
    if returned != tuple(spec.outputs):
        raise PluginError(
            f"the family's onnx() names the outputs {', '.join(spec.outputs)}, and its model "
            f"returns {', '.join(returned)}"
        )
    every = (axis for axes in spec.inputs.values() for axis in axes)
    names = dict.fromkeys(axis for axis in every if isinstance(axis, str))
    dims = {
        axis: torch.export.Dim(axis, min=int(axis != PAST_TOKENS), max=spec.limits.get(axis))
        for axis in names
    }
    shapes = {
        name: {position: dims[axis] for position, axis in enumerate(axes) if isinstance(axis, str)}
        for name, axes in spec.inputs.items()
    }
    order = [name for name in inspect.signature(model.forward).parameters if name in example]
    flat = {name: _named(name, example[name], spec) for name in order}
    try:
        with _silence():
            program = torch.onnx.export(
                model,
                (),
                kwargs={name: example[name] for name in order},
                input_names=[name for names in flat.values() for name in names],
                output_names=list(spec.outputs),
                opset_version=opset,
                dynamic_shapes={
                    name: [shapes[each] for each in names]
                    if name not in spec.inputs
                    else shapes[name]
                    for name, names in flat.items()
                },
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise VerificationError(f"the model cannot be exported: {_reason(error)}") from error
    assert program is not None, "the exporter returns a program where dynamo=True"
    return program


def _named(name: str, value: Tensor | list[Tensor], spec: OnnxSpec) -> list[str]:
    """Return the inputs of the graph that a parameter of the module stands for, in order."""
    if isinstance(value, Tensor):
        return [name]
    return [each for each in spec.inputs if each.startswith(f"{name}.")]


def _reason(error: BaseException) -> str:
    """Return the first line of the error at the bottom, where the exporter says why."""
    while error.__cause__ is not None:
        error = error.__cause__
    line = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line.strip()}"


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the exporter's progress, its advice and its warnings about itself off the screen."""
    before: Any = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
