"""Attention in a form that ONNX Runtime computes without copies of the key-value cache."""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from zoo.inference.graph_scan import CONTRIB

MHA = "MultiHeadAttention"
SWAPPED = (0, 2, 1, 3)  # (batch, heads, tokens, size) and (batch, tokens, heads, size)
LAST = (1 << 63) - 1  # ends a slice at the end of the axis


def transpose_keys(model: ir.Model) -> None:
    """Transpose keys by one node, in place, which ONNX Runtime merges into the product."""
    # The exporter writes a product of queries and keys with a batch of matrices: of each block, two
    # reshapes and six nodes that compute their shapes. With these, all keys of the cache are copied
    # in each step
    from onnxscript.rewriter import pattern

    rule = pattern.RewriteRule(
        _transposed_as_matrices,
        lambda op, keys: op.Transpose(keys, perm=[0, 1, 3, 2]),
        lambda context, keys, **_: keys.shape is not None and keys.shape.rank() == 4,
        remove_nodes=False,  # the nodes that compute shapes may have other uses
    )
    pattern.RewriteRuleSet([rule]).apply_to_model(model)


def _transposed_as_matrices(op: Any, keys: ir.Value) -> Any:
    """The last two axes swapped, as the exporter writes it; see ``onnxscript.rewriter.pattern``."""
    shape = op.Shape(keys)
    outer = op.Slice(shape, [-LAST - 1], [-2])
    tokens = op.Slice(shape, [-2], [-1])
    size = op.Slice(shape, [-1], [LAST])
    matrices = op.Reshape(keys, op.Concat([-1], tokens, size, axis=0))
    transposed = op.Transpose(matrices, perm=[0, 2, 1])
    return op.Reshape(transposed, op.Concat(outer, size, tokens, axis=0))


def read_cache(model: ir.Model) -> None:
    """Give the cache to ``MultiHeadAttention`` as it is, in place."""
    # Rules of fusion give it all keys and values in the shape (batch, tokens, hidden), for which
    # they transpose the cache in each step, and the operator transposes it back. The operator also
    # takes cached and new ones separately, and returns them together; or without new ones, as in
    # cross-attention, keys and values of the shape (batch, heads, tokens, size)
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    for node in list(model.graph):
        if node.op_type == MHA and node.domain == CONTRIB:
            _, keys, values, *biases = node.inputs[:5]
            with_heads = [_with_heads(value) for value in (keys, values)]
            split = [value for value in with_heads if value is not None]
            if len(split) == 2 and not any(biases):
                _attend(model.graph, node, split)
    RemoveUnusedNodesPass()(model)


def _attend(graph: ir.Graph, node: ir.Node, all_values: Sequence[ir.Value]) -> None:
    """Replace attention by one that reads, and may return, keys and values with heads."""
    query, _, _, *more = node.inputs
    (past_keys, new_keys), (past_values, new_values) = map(_past_and_new, all_values)
    if new_keys is None or new_values is None:
        inputs = [query, *all_values, *more]
        returned = []
    else:
        bias = [*more, None, None, None][:3]
        inputs = [query, new_keys, new_values, *bias, past_keys, past_values]
        returned = list(all_values)
    replaced = [*node.outputs, *returned]
    outputs = [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in replaced]
    graph.insert_before(
        node, ir.node(MHA, inputs, node.attributes, domain=CONTRIB, outputs=outputs, name=node.name)
    )
    for old, new in zip(replaced, outputs, strict=True):
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def _with_heads(value: ir.Value | None) -> ir.Value | None:
    """Return keys or values (batch, heads, tokens, size) that a value without heads is made of."""
    merged = _input(value, "Reshape")
    heads = _input(merged, "Transpose", SWAPPED)
    return heads if _rank(value) == 3 and _rank(heads) == 4 else None


def _past_and_new(value: ir.Value) -> tuple[ir.Value | None, ir.Value | None]:
    """Return cached keys or values, and new ones without heads, or ``None`` twice."""
    node = value.producer()
    if node is None or node.op_type != "Concat" or len(node.inputs) != 2 or len(value.uses()) > 1:
        return None, None
    past, new = node.inputs
    flat = _input(_input(new, "Transpose", SWAPPED), "Reshape")
    if _rank(flat) != 3:
        return None, None
    return (past, flat) if node.attributes["axis"].as_int() in (2, -2) else (None, None)


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else value.shape.rank()


def _input(
    value: ir.Value | None, operator: str, perm: Sequence[int] | None = None
) -> ir.Value | None:
    """Return the first input of the node that makes a value, if the node is such an operator."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != operator:
        return None
    if perm is not None and tuple(node.attributes["perm"].as_ints()) != perm:
        return None
    return node.inputs[0]
