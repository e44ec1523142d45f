"""Constants of graphs: weights of products, and what constants determine."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

STANDARD_DOMAINS = ("", "ai.onnx")
# Transposed tables belong to embeddings, and are stored once; see ``quantize``.
UNFOLDED_OPERATORS = ("Constant", "Transpose")


def load_folded(path: Path) -> ir.Model:
    """Load a graph and compute the nodes whose inputs are constants."""
    # Some models slice their weights, for example of queries, keys and values, or project a table
    # of positions. ONNX Runtime computes this once, when it loads a graph; before that, a product
    # of such weights does not look like one of constants.
    #
    # A node with more results than inputs stays, since a constant would take more room than it does
    model = ir.load(path)
    for node in list(model.graph):
        inputs = {value.name: value for value in node.inputs if value is not None}
        if node.domain not in STANDARD_DOMAINS or node.op_type in UNFOLDED_OPERATORS or not inputs:
            continue
        constants = {
            str(name): tensor.numpy()
            for name, value in inputs.items()
            # a constant that is also an input can be replaced
            if not value.is_graph_input()
            and (tensor := ir.convenience.get_const_tensor(value)) is not None
        }
        if len(constants) == len(inputs):
            _fold(model.graph, node, constants)
    return model


def _fold(graph: ir.Graph, node: ir.Node, inputs: dict[str, NDArray[np.generic]]) -> None:
    """Replace a node by its outputs."""
    evaluated = ReferenceEvaluator(ir.serde.serialize_node(node)).run(None, inputs)
    results = [np.asarray(result) for result in evaluated]
    if sum(result.size for result in results) > sum(array.size for array in inputs.values()):
        return
    for output, result in zip(node.outputs, results, strict=True):
        folded = ir.Value(name=f"{output.name}.folded", const_value=ir.tensor(result))
        folded.dtype = ir.DataType.from_numpy(result.dtype)
        folded.shape = ir.Shape(result.shape)
        graph.register_initializer(folded)
        output.replace_all_uses_with(folded, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def constant_weights(value: ir.Value | None) -> ir.Value | None:
    """Return the constant that a value is, or is the transpose of; ``None`` if it is computed."""
    if value is None:
        return None
    maker = value.producer()
    if maker is not None and maker.op_type == "Transpose":
        value = maker.inputs[0]
    if value is None or not value.is_initializer() or value.const_value is None:
        return None
    is_matrix = value.dtype == ir.DataType.FLOAT and len(value.const_value.shape) == 2
    return value if is_matrix else None


def add_constant(graph: ir.Graph, name: str, values: NDArray[Any]) -> ir.Value:
    """Add a constant to a graph."""
    tensor = ir.tensor(values, name=name)
    value = ir.Value(
        name=name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(values.shape),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value
