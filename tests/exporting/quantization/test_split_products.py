"""Products of the parts of a split against the product that was split."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from tests.exporting.quantization.making import CHANNELS, RNG, run, save_graph, tokens
from zoo.exporting.quantization.constants import load_folded
from zoo.exporting.quantization.split_products import split_products


@pytest.mark.parametrize("bias", [True, False])
def test_parts_of_a_product_are_products(bias: bool, tmp_path: Path) -> None:
    constants = {
        "weights": RNG.standard_normal((CHANNELS, 24)).astype(np.float32),
        "bias": RNG.standard_normal(24).astype(np.float32),
        "sizes": np.array([8, 4, 12]),
    }
    nodes = [helper.make_node("MatMul", ["x", "weights"], ["h"], name="map")]
    if bias:
        nodes.append(helper.make_node("Add", ["bias", "h"], ["sum"]))
    whole = "sum" if bias else "h"
    nodes.append(helper.make_node("Split", [whole, "sizes"], ["a", "b", "c"], axis=-1))
    sizes = {"a": 8, "b": 4, "c": 12}
    for name in sizes:
        nodes.append(helper.make_node("Neg", [name], [f"{name}.negative"]))
    source = save_graph(
        tmp_path / "float.onnx", nodes, constants, {f"{n}.negative": sizes[n] for n in sizes}
    )
    model = load_folded(source)
    assert split_products(model.graph, ["map", "other"]) == ["map.0", "map.1", "map.2"]
    assert "Split" not in {node.op_type for node in model.graph}
    ir.save(model, tmp_path / "split.onnx")
    x = tokens()
    for part, expected in zip(run(tmp_path / "split.onnx", x), run(source, x), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-5)


def test_a_product_that_something_else_reads_is_not_split(tmp_path: Path) -> None:
    constants = {
        "weights": RNG.standard_normal((CHANNELS, 8)).astype(np.float32),
        "sizes": np.array([4, 4]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["h"], name="map"),
        helper.make_node("Split", ["h", "sizes"], ["a", "b"], axis=-1),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    source = save_graph(tmp_path / "float.onnx", nodes, constants, {"y": 4, "h": 8})
    model = load_folded(source)
    assert split_products(model.graph, ["map"]) == ["map"]


def test_weights_that_several_products_read_are_not_split(tmp_path: Path) -> None:
    constants = {
        "weights": RNG.standard_normal((CHANNELS, CHANNELS)).astype(np.float32),
        "sizes": np.array([40, CHANNELS - 40]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "weights"], ["g"], name="second"),
        helper.make_node("Split", ["g", "sizes"], ["a", "b"], axis=-1),
        helper.make_node("Neg", ["a"], ["y"]),
        helper.make_node("Neg", ["b"], ["z"]),
    ]
    outputs = {"y": 40, "z": CHANNELS - 40}
    source = save_graph(tmp_path / "float.onnx", nodes, constants, outputs)
    names = ["first", "second"]
    assert split_products(load_folded(source).graph, names) == names
