"""ONNX files: supported versions, writing, and checks of the written file."""

import ast
from itertools import chain, count
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime

from zoo.checkpoint import DATA
from zoo.errors import VerificationError
from zoo.exporting.graph.opsets import OPSETS, latest_release
from zoo.families.onnx import LOGITS, OnnxSpec, axis_sum
from zoo.inference.graph_scan import CONTRIB

SCOPES = "pkg.torch.onnx.name_scopes"  # metadata of a node: the modules that it is of, as a list
EXTERNAL_OVER = 1 << 30  # bytes of weights; a protobuf ends at 2 GiB


def min_onnxruntime(opset: int, dtype: str, *, fused: bool = False) -> str:
    """Return the first release of ONNX Runtime that runs a graph on CPUs."""
    # Fused graphs are known to run in the installed release
    if fused:
        return ".".join(onnxruntime.__version__.split(".")[:2])
    return latest_release(OPSETS[opset].onnxruntime, dtype)


def write_graph(model: ir.Model, path: Path, opset: int, external_over: int) -> str | None:
    """Write a traced graph, without stack traces and other metadata of the exporter."""
    # Products and embeddings are named by their modules, such as ``layers.0.attention.qkv``; those
    # of the model itself, such as the product with a tied vocabulary, are called ``logits``.
    products = list(model.graph.all_nodes())
    used = {node.name for node in products}
    for node in products:
        scopes = ast.literal_eval(node.metadata_props.get(SCOPES, "[]"))
        if node.op_type in ("MatMul", "Gather") and len(scopes) > 1:
            suffixes = chain([""], (f".{number}" for number in count(1)))
            names = (f"{scopes[-2] or LOGITS}{suffix}" for suffix in suffixes)
            node.name = next(name for name in names if name not in used)
            used.add(node.name)
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        nodes = list(graph.all_nodes())
        values = [value for node in nodes for value in node.outputs]
        for part in (graph, *nodes, *values, *graph.inputs, *graph.initializers.values()):
            _drop_metadata(part)
    _drop_metadata(model)
    model.ir_version = OPSETS[opset].ir
    weights = [v.const_value for v in model.graph.initializers.values() if v.const_value]
    external = sum(tensor.nbytes for tensor in weights) > external_over
    name = path.with_suffix(DATA).name if external else None
    ir.save(model, path, external_data=name)
    return name


def _drop_metadata(part: Any) -> None:
    """Drop stack traces, module paths and versions that the exporter records."""
    part.doc_string = None
    part.metadata_props.clear()


def check_graph(path: Path, spec: OnnxSpec, opset: int) -> onnx.ModelProto:
    """Check a written file without running it."""
    model = onnx.load(str(path), load_external_data=False)
    if all(entry.domain != CONTRIB for entry in model.opset_import):  # else the runtime checks it
        try:
            onnx.checker.check_model(str(path), full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            line = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise VerificationError(f"the graph is not valid: {line}") from error
    opsets = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if opsets != [opset] or model.ir_version != OPSETS[opset].ir:
        raise VerificationError(f"the graph is of opset {opsets}, IR {model.ir_version}")
    expected = {**spec.inputs, **spec.outputs}
    axes = {
        value.name: tuple(
            axis_sum(*dim.dim_param.split(" + ")) or dim.dim_value
            for dim in value.type.tensor_type.shape.dim
        )
        for value in (*model.graph.input, *model.graph.output)
    }
    if list(axes.items()) != [(name, tuple(names)) for name, names in expected.items()]:
        raise VerificationError(f"the graph has {axes}, where {expected} is declared")
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location" and entry.value != path.with_suffix(DATA).name:
                raise VerificationError(f"the data of {tensor.name} is in {entry.value!r}")
    return model
