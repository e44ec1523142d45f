"""Attention in a form that ONNX Runtime computes without copies of keys."""

from typing import Any

import onnx_ir as ir

LAST = (1 << 63) - 1  # ends a slice at the end of the axis


def transpose_keys(model: ir.Model) -> None:
    """Transpose keys by one node, in place, which ONNX Runtime merges into the product.

    The exporter writes a product of queries and keys with a batch of matrices: of each block, two
    reshapes and six nodes that compute their shapes. With these, all keys of the cache are copied
    in each step.
    """
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
    tokens, size = op.Slice(shape, [-2], [-1]), op.Slice(shape, [-1], [LAST])
    matrices = op.Reshape(keys, op.Concat([-1], tokens, size, axis=0))
    transposed = op.Transpose(matrices, perm=[0, 2, 1])
    return op.Reshape(transposed, op.Concat(outer, size, tokens, axis=0))
