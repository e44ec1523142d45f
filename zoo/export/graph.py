"""The ONNX file: which versions it may have, what is in it, and what must not be."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx

from zoo.checkpoint import DATA
from zoo.errors import UsageError, VerificationError
from zoo.families.onnx import OnnxSpec, axis_sum

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram


class Versions(NamedTuple):
    """What goes with an operator set.

    Attributes:
        ir: the oldest file format that has it.
        onnxruntime: the first release that runs such a graph.
    """

    ir: int
    onnxruntime: str


# Each line was tried: an encoder's graph loads and runs in that release, and not in the one
# before it (opset 18 in 1.15, the oldest one tried). Opset 23 has an attention operator, whose
# kernel in onnxruntime 1.31 refuses a mask that it should broadcast over the queries.
OPSETS = {
    18: Versions(8, "1.15"),
    19: Versions(9, "1.16"),
    20: Versions(9, "1.17"),
    21: Versions(10, "1.18"),
    22: Versions(10, "1.21"),
}
FLOAT16_SINCE = "1.17"  # older releases do not normalise layers in float16 on CPUs, tried likewise
# The one that the exporter's own operators are written in, and the fastest in onnxruntime 1.31.
DEFAULT_OPSET = 18
EXTERNAL_OVER = 1 << 30  # bytes of weights; a protobuf ends at 2 GiB


def check_opset(opset: int | None) -> int:
    """Return the operator set to export.

    Raises:
        UsageError: it is not one that was tried.
    """
    if opset is None:
        return DEFAULT_OPSET
    if opset not in OPSETS:
        raise UsageError(f"opset {opset} is not supported", f"give {min(OPSETS)} to {max(OPSETS)}")
    return opset


def min_onnxruntime(opset: int, dtype: str) -> str:
    """Return the first release of ONNX Runtime that runs a graph on CPUs."""
    needed = [OPSETS[opset].onnxruntime, *([FLOAT16_SINCE] if dtype == "float16" else [])]
    return max(needed, key=lambda version: [int(part) for part in version.split(".")])


def write_graph(program: "ONNXProgram", path: Path, opset: int, external_over: int) -> str | None:
    """Write a traced program without the traces of the machine it was made on.

    Args:
        program: what the exporter returned.
        path: the file.
        opset: the operator set it was exported for.
        external_over: from this many bytes of weights on, they go to a file of their own.

    Returns:
        the name of that file, or ``None``.
    """
    model = program.model
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        nodes = list(graph.all_nodes())
        values = [value for node in nodes for value in node.outputs]
        for holder in (graph, *nodes, *values, *graph.inputs, *graph.initializers.values()):
            _forget(holder)
    _forget(model)
    model.ir_version = OPSETS[opset].ir
    weights = [v.const_value for v in model.graph.initializers.values() if v.const_value]
    external = sum(tensor.nbytes for tensor in weights) > external_over
    program.save(path, external_data=external)
    return path.with_suffix(DATA).name if external else None


def _forget(holder: Any) -> None:
    """Drop what the exporter notes beside the graph: stack traces, module paths, versions."""
    holder.doc_string = None
    holder.metadata_props.clear()


def check_graph(path: Path, spec: OnnxSpec, opset: int) -> onnx.ModelProto:
    """Check the file as written, without running it.

    Returns:
        the model, its weights not loaded where they are in a file of their own.

    Raises:
        VerificationError: it is not valid ONNX, its names or axes are not the specification's,
            an axis was baked in, or it refers to a file it should not.
    """
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise VerificationError(f"the graph is not valid: {_first_line(error)}") from error
    model = onnx.load(str(path), load_external_data=False)
    found = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if found != [opset] or model.ir_version != OPSETS[opset].ir:
        raise VerificationError(f"the graph is of opset {found}, IR {model.ir_version}")
    expected = {**spec.inputs, **spec.outputs}
    axes = {value.name: _axes(value) for value in (*model.graph.input, *model.graph.output)}
    if list(axes.items()) != [(name, tuple(wanted)) for name, wanted in expected.items()]:
        raise VerificationError(f"the graph has {axes}, where {expected} is declared")
    _check_locations(model, path.with_suffix(DATA).name)
    return model


def _axes(value: onnx.ValueInfoProto) -> tuple[str | int, ...]:
    dims = value.type.tensor_type.shape.dim
    return tuple(axis_sum(*dim.dim_param.split(" + ")) or dim.dim_value for dim in dims)


def _check_locations(model: onnx.ModelProto, expected: str) -> None:
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location" and entry.value != expected:
                raise VerificationError(f"{tensor.name} is kept in {entry.value!r}")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
