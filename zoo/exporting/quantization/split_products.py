"""Products whose outputs are split, such as queries, keys and values: one for each part."""

from collections.abc import Collection

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from zoo.exporting.quantization.constants import add_constant, constant_weights


def split_products(graph: ir.Graph, names: Collection[str]) -> list[str]:
    """Compute the parts that outputs are split into by products of their own, in place.

    A split copies all outputs, which takes 5 % of the time of a small encoder in int8. Products of
    int8 with the same input share its integers, so that several cost no more than one.

    Args:
        graph: a graph in float32.
        names: names of the products.

    Returns:
        The names, with those of the parts in place of a product that was split.
    """
    result = []
    for node in list(graph):
        if node.name not in names:
            continue
        parts = _parts(graph, node)
        result += [str(part.name) for part in parts] or [str(node.name)]
    return result


def _parts(graph: ir.Graph, product: ir.Node) -> list[ir.Node]:
    """Replace a product, its bias and their split; return the new products, or none."""
    weights = constant_weights(product.inputs[1])
    if product.op_type != "MatMul" or weights is None or weights is not product.inputs[1]:
        return []
    if len(weights.uses()) > 1:  # Each reader would have parts of its own in the file.
        return []
    reader = _only_reader(product)
    bias: NDArray[np.float32] | None = None
    replaced_nodes = [product]
    if reader is not None and reader.op_type == "Add":
        bias = _bias(reader, product)
        replaced_nodes.append(reader)
        reader = None if bias is None else _only_reader(reader)
    sizes = None if reader is None else _sizes(reader)
    if reader is None or sizes is None:
        return []
    replaced_nodes.append(reader)
    assert weights.const_value is not None, "weights are constant"
    ends = np.cumsum(sizes)[:-1]
    columns = np.split(weights.const_value.numpy(), ends, axis=1)
    biases = [None] * len(sizes) if bias is None else np.split(bias, ends)
    products = []
    for number, output in enumerate(reader.outputs):
        name = f"{product.name}.{number}"
        part_weights = np.ascontiguousarray(columns[number])
        constant = add_constant(graph, f"{name}.weights", part_weights)
        nodes = [ir.node("MatMul", [product.inputs[0], constant], name=name)]
        if (part_bias := biases[number]) is not None:
            constant = add_constant(graph, f"{name}.bias", part_bias)
            nodes.append(ir.node("Add", [nodes[0].outputs[0], constant], name=f"{name}.sum"))
        result = nodes[-1].outputs[0]
        result.type = output.type
        result.shape = output.shape
        graph.insert_before(reader, nodes)
        output.replace_all_uses_with(result)
        products.append(nodes[0])
    for node in reversed(replaced_nodes):
        graph.remove(node, safe=True)
    return products


def _only_reader(node: ir.Node) -> ir.Node | None:
    """Return the node that reads the output of a node, if it is one."""
    output = node.outputs[0]
    readers = list(output.uses())
    if len(readers) != 1 or output.is_graph_output():
        return None
    reader = readers[0].node
    return reader if reader.graph is node.graph else None


def _bias(addition: ir.Node, product: ir.Node) -> NDArray[np.float32] | None:
    """Return the constant that is added to a product, (out,), or ``None`` without one."""
    for value in addition.inputs:
        if value is None or value is product.outputs[0] or not value.is_initializer():
            continue
        constant = value.const_value
        if constant is not None and len(constant.shape) == 1 and constant.size > 1:
            values: NDArray[np.float32] = constant.numpy()
            return values
    return None


def _sizes(split: ir.Node) -> list[int] | None:
    """Return the sizes of the parts of a split along the last axis, ``None`` for others."""
    outputs = split.outputs
    if split.op_type != "Split" or any(output.is_graph_output() for output in outputs):
        return None
    axis = split.attributes["axis"].as_int() if "axis" in split.attributes else 0
    shapes = [output.shape for output in outputs]
    sizes = []
    for shape in shapes:
        if shape is None or axis not in (-1, shape.rank() - 1) or not isinstance(shape[-1], int):
            return None
        sizes.append(shape[-1])
    return sizes
