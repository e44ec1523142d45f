"""Fusion of layers into operators of ONNX Runtime, by the rules of onnxscript."""

from collections import Counter

import onnx_ir as ir

from zoo.exporting.graph.attention import read_cache
from zoo.exporting.graph.trace import silence
from zoo.inference.graph_scan import CONTRIB


def fuse(model: ir.Model) -> ir.Model:
    """Return a graph in which layers are fused; the argument may be changed."""
    # Attention becomes ``MultiHeadAttention``, which takes queries, keys and values as the model's
    # one product gives them, and a bias such as relative positions; an activation becomes ``Gelu``
    # or ``FastGelu``. Products stay products, so that they can still be quantized. Programs other
    # than ONNX Runtime do not know these operators.
    #
    # Two rules are left out. ``SkipLayerNormalization``, a norm after a sum, takes several times as
    # long as both on CPUs in onnxruntime 1.31 (``python -m benchmarks.onnx_operators``), and
    # ``BiasGelu`` takes the bias from a quantized product, which adds it at no cost.
    from onnxscript.optimizer import optimize
    from onnxscript.rewriter.ort_fusions import (
        _core,
        attention,
        erfgelu,
        gelu,
        mha,
        mha_bias,
        mha_scale,
        rms_normalization,
        sdpa,
        sdpa_via_mha,
        skip_normalization,
    )

    with silence():
        model = _core._pre_optimize(model)
        erfgelu.fuse_erfgelu(model)
        rms_normalization.fuse_rms_normalization(model)
        skip_normalization.fuse_skip_rms_normalization(model)
        sdpa.fuse_sdpa(model, apply_shape_inference=True)
        if mha.fuse_mha1(model) + mha.fuse_mha2(model):
            mha_scale.fuse_mha_scale(model)
            mha_bias.fuse_mha_bias(model)
            attention.fuse_attention(model)
        gelu.fuse_gelu(model)
        sdpa_via_mha.replace_sdpa_by_mha(model)
        optimize(model)  # inlines the functions that rules introduced and did not use
    read_cache(model)
    return model


def order_gelu(model: ir.Model) -> None:
    """Reorder the products of activations, in place, so that ONNX Runtime fuses them."""
    # The exporter writes x * (0.5 * (1 + erf(x / sqrt(2)))), and tanh likewise; ONNX Runtime knows
    # (x * 0.5) * (1 + erf(...)). Products by 0.5 are exact, so that both give the same numbers
    from onnxscript.rewriter import pattern

    rule = pattern.RewriteRule(
        lambda op, x, half, y, addend: op.Mul(x, op.Mul(half, op.Add(y, addend))),
        lambda op, x, half, y, addend: op.Mul(op.Mul(x, half), op.Add(y, addend)),
        lambda context, half, **_: _is_half(half),
    )
    pattern.RewriteRuleSet([rule], commute=True).apply_to_model(model)


def _is_half(value: ir.Value) -> bool:
    tensor = ir.convenience.get_const_tensor(value)
    return tensor is not None and tensor.size == 1 and tensor.numpy().item() == 0.5


def fused_operators(model: ir.Model) -> dict[str, int]:
    """Return operator -> number of nodes, of the operators of ONNX Runtime."""
    names = (node.op_type for node in model.graph.all_nodes() if node.domain == CONTRIB)
    return dict(sorted(Counter(names).items()))
