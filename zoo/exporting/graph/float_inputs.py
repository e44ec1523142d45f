"""Inputs and outputs of graphs in float16."""

import onnx_ir as ir

from zoo.families.onnx import PAST, PRESENT

HALF = ir.DataType.FLOAT16
FLOAT = ir.DataType.FLOAT


def keep_float32(model: ir.Model) -> None:
    """Make the inputs and outputs of a graph in float16 float32, in place."""
    # Readers of exports take and return arrays in float32: Transformers.js computes embeddings and
    # probabilities of the output's bytes as float32, whatever its type. Graphs of the Hub therefore
    # keep the types of inputs and outputs, except for the key-value cache (``kv_cache_dtype`` of
    # ``config.json``), which a reader hands from one run to the next.
    #
    # The key-value cache stays in float16, and a graph in float32 as it is
    graph = model.graph
    for value in graph.inputs:
        if _is_half(value, PAST):
            users = tuple(value.uses())
            value.dtype = FLOAT
            node = ir.node(
                "Cast", [value], attributes={"to": HALF}, name=f"{value.name}_to_float16"
            )
            graph.insert_before(graph[0], node)
            _describe(node.outputs[0], f"{value.name}_float16", HALF, value.shape)
            for user, index in users:
                user.replace_input_with(index, node.outputs[0])
    for position, value in enumerate(graph.outputs):
        if _is_half(value, PRESENT):
            name = str(value.name)
            value.name = f"{name}_float16"
            node = ir.node("Cast", [value], attributes={"to": FLOAT}, name=f"{name}_to_float32")
            graph.append(node)
            _describe(node.outputs[0], name, FLOAT, value.shape)
            graph.outputs[position] = node.outputs[0]


def _is_half(value: ir.Value, cache: str) -> bool:
    return value.dtype == HALF and not str(value.name).startswith(f"{cache}.")


def _describe(value: ir.Value, name: str, dtype: ir.DataType, shape: ir.Shape | None) -> None:
    value.name = name
    value.dtype = dtype
    value.shape = shape
