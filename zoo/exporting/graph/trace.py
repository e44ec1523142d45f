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

from zoo.errors import PluginError, UsageError, VerificationError
from zoo.families.onnx import PAST_TOKENS, OnnxSpec

Example = Mapping[str, Tensor | list[Tensor]]


def trace(
    model: nn.Module, example: Example, spec: OnnxSpec, opset: int, *, optimize: bool = True
) -> torch.onnx.ONNXProgram:
    """Trace a module with all axes of the specification dynamic.

    Args:
        model: module in evaluation mode.
        example: small batch with padding, by the names of the module's parameters; a list holds
            the inputs whose names begin with the parameter's. Sizes differ from each other
            and from 1, because the exporter specializes equal sizes and 1.
        spec: names and axes of inputs and outputs.
        opset: operator set version.
        optimize: simplify the graph, and compute what only depends on weights.

    Raises:
        PluginError: the outputs of the module differ from the specification.
        UsageError: an output is not a floating-point number.
        VerificationError: the exporter fails.
    """
    _check_outputs(model, example, spec)
    shapes = _dynamic_shapes(spec)
    arguments: dict[str, Tensor | list[Tensor]] = {}
    dynamic_shapes: dict[str, Any] = {}
    input_names: list[str] = []  # in the order of the module's parameters
    for name in inspect.signature(model.forward).parameters:
        if name not in example:
            continue
        arguments[name] = example[name]
        if isinstance(example[name], Tensor):
            names = [name]
        else:
            names = [part for part in spec.inputs if part.startswith(f"{name}.")]
        input_names += names
        if name in spec.inputs:
            dynamic_shapes[name] = shapes[name]
        else:
            dynamic_shapes[name] = [shapes[part] for part in names]
    try:
        with silence():
            program = torch.onnx.export(
                model,
                (),
                kwargs=arguments,
                input_names=input_names,
                output_names=list(spec.outputs),
                opset_version=opset,
                dynamic_shapes=dynamic_shapes,
                dynamo=True,
                optimize=optimize,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # the innermost error names the reason
            cause = cause.__cause__
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        reason = lines[0] if lines else ""
        raise VerificationError(
            f"the model cannot be exported: {type(cause).__name__}: {reason}"
        ) from error
    assert program is not None, "the exporter returns a program where dynamo=True"
    return program


def _dynamic_shapes(spec: OnnxSpec) -> dict[str, dict[int, Any]]:
    """Return the dynamic axes of each input by their positions; equal names have equal sizes."""
    dims: dict[str, Any] = {}
    shapes: dict[str, dict[int, Any]] = {}
    for name, axes in spec.inputs.items():
        shapes[name] = {}
        for position, axis in enumerate(axes):
            if not isinstance(axis, str):
                continue
            if axis not in dims:
                smallest = 0 if axis == PAST_TOKENS else 1
                dims[axis] = torch.export.Dim(axis, min=smallest, max=spec.limits.get(axis))
            shapes[name][position] = dims[axis]
    return shapes


def _check_outputs(model: nn.Module, example: Example, spec: OnnxSpec) -> None:
    with torch.inference_mode():
        outputs = model(**example)
    returned = tuple(outputs)
    if returned != tuple(spec.outputs):
        raise PluginError(
            f"the family's onnx() names the outputs {', '.join(spec.outputs)}, and its model "
            f"returns {', '.join(returned)}"
        )
    indices = [name for name, tensor in outputs.items() if not tensor.is_floating_point()]
    if indices:
        raise UsageError(
            f"the outputs {', '.join(indices)} are indices, which rounding may swap, so that no "
            "tolerance compares a graph with torch",
            "run the model in torch, or convert it with another head",
        )


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Suppress the output, log records and warnings of a library."""
    previous_level: Any = logging.root.manager.disable
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
        logging.disable(previous_level)
