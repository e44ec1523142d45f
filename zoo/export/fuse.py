"""Fusion of layers into operators of ONNX Runtime, by the rules of onnxscript.

Attention becomes ``MultiHeadAttention``, which takes queries, keys and values as the model's one
product gives them, and a bias such as relative positions; a norm after a residual sum becomes
``SkipLayerNormalization``, and an activation after a bias ``BiasGelu``. Products stay products, so
that they can still be quantized. Programs other than ONNX Runtime do not know these operators.
"""

from collections import Counter

import onnx_ir as ir

from zoo.export.trace import silence
from zoo.inference.graph_scan import CONTRIB


def fuse(model: ir.Model) -> ir.Model:
    """Return a graph in which layers are fused; the argument may be changed."""
    from onnxscript.rewriter.ort_fusions._core import fuse_xformers

    with silence():
        fused, _ = fuse_xformers(model)
    return fused


def fused_operators(model: ir.Model) -> dict[str, int]:
    """Return operator -> number of nodes, of the operators of ONNX Runtime."""
    names = (node.op_type for node in model.graph.all_nodes() if node.domain == CONTRIB)
    return dict(sorted(Counter(names).items()))
