"""Attention of exported graphs, as ONNX Runtime optimizes it."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from tests.exporting.graph.making import CACHED, LAYERS, traced
from zoo.exporting.graph.attention import transpose_keys
from zoo.exporting.graph.fuse import fuse
from zoo.families.onnx import PAST, PRESENT

TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
SIZES = {"batch": 2, "past_tokens": 4, "all_tokens": 7}  # other axes have 3


def feeds(session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    """Return random inputs of a decoder, without padding."""
    rng = np.random.default_rng(0)
    inputs = {}
    for node in session.get_inputs():
        shape = [axis if isinstance(axis, int) else SIZES.get(axis, 3) for axis in node.shape]
        values = np.ones(shape) if node.name.endswith("mask") else rng.uniform(1, 9, shape)
        inputs[node.name] = values.astype(TYPES[node.type])
    return inputs


def optimized(path: Path) -> tuple[onnx.GraphProto, list[np.ndarray]]:
    """Return a graph as ONNX Runtime runs it, and its outputs."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path.with_suffix(".optimized.onnx"))
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath).graph, session.run(None, feeds(session))


def transposed_in_products(graph: onnx.GraphProto) -> int:
    """Return the number of products whose second factor is read as its transpose."""
    products = [node for node in graph.node if node.op_type == "FusedMatMul"]
    values = [{a.name: a.i for a in node.attribute}.get("transB", 0) for node in products]
    return sum(values)


def transposed(graph: onnx.GraphProto) -> set[str]:
    """Return which tensors of the cache are transposed."""
    read = {name for node in graph.node if node.op_type == "Transpose" for name in node.input}
    return {name for name in read if name.startswith((PRESENT, PAST))}


@pytest.mark.parametrize(
    ("name", "attentions"),
    [("second", LAYERS), pytest.param("plain", 2 * LAYERS, marks=pytest.mark.long)],
)
def test_keys_of_a_cache_are_not_copied(name: str, attentions: int, tmp_path: Path) -> None:
    """Self-attention, and of an encoder-decoder cross-attention, too."""
    model = traced(name)[-1]
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    ir.save(model, before)
    transpose_keys(model)
    ir.save(model, after)
    (copied, expected), (merged, outputs) = optimized(before), optimized(after)
    assert (transposed_in_products(copied), transposed_in_products(merged)) == (0, attentions)
    assert transposed(merged) == set()
    for wanted, actual in zip(expected, outputs, strict=True):
        assert np.abs(actual - wanted).max() <= 1e-6 * np.abs(wanted).max()


# test_families.py in quantization compares a fused encoder-decoder with torch.
@pytest.mark.long
@pytest.mark.parametrize("name", CACHED)
def test_the_cache_is_of_fused_attention_as_it_is(name: str, tmp_path: Path) -> None:
    plain, cached = traced(name)[-1], tmp_path / "fused.onnx"
    ir.save(plain, tmp_path / "plain.onnx")
    presents = [value.name for value in plain.graph.outputs][1:]
    ir.save(fuse(plain), cached)
    (_, expected), (graph, outputs) = optimized(tmp_path / "plain.onnx"), optimized(cached)
    attention = [node for node in graph.node if node.op_type == "MultiHeadAttention"]
    assert [name for node in attention for name in node.output[1:]] == presents
    assert transposed(graph) == set()
    sources = [name for node in attention for name in node.input[1:3] if name.startswith(PAST)]
    assert len(sources) == (2 * LAYERS if name == "plain" else 0), "keys and values of the source"
    for wanted, actual in zip(expected, outputs, strict=True):
        assert np.abs(actual - wanted).max() <= 1e-5 * np.abs(wanted).max()
