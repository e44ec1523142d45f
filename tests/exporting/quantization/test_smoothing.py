"""Graphs whose outliers were moved out of the way against the graph as it was."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx import helper

from tests.exporting.quantization.making import CHANNELS, RNG, run, save_graph, tokens
from zoo.exporting.quantization.constants import load_folded
from zoo.exporting.quantization.plan import Quantization
from zoo.exporting.quantization.quantize import quantize
from zoo.exporting.quantization.smoothing import channel_scales, input_statistics, smooth

SCALES = np.where(np.arange(CHANNELS) == 5, 30, 1).astype(np.float32)


def write_graph(path: Path, outputs: int) -> Path:
    """Write a norm whose output a product reads, and a residual."""
    weights = RNG.standard_normal((CHANNELS, outputs)).astype(np.float32)
    constants = {"scales": SCALES, "weights": weights, "bias": np.ones(outputs, np.float32)}
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scales"], ["normed"], axis=-1),
        helper.make_node("MatMul", ["normed", "weights"], ["product"], name="map"),
        helper.make_node("Add", ["product", "bias"], ["y"], name="bias"),
    ]
    return save_graph(path, nodes, constants, {"y": outputs, "normed": CHANNELS})


def test_large_channels_move_into_the_weights(tmp_path: Path) -> None:
    source = write_graph(tmp_path / "float.onnx", 4 * CHANNELS)
    x = tokens()
    statistics = input_statistics(source, ["map", "bias"], [{"x": x[:2]}, {"x": x[2:]}])
    expected, normed = run(source, x)
    np.testing.assert_allclose(statistics["map"].magnitudes, np.abs(normed).max((0, 1)), rtol=1e-6)
    ranges = (normed.max(-1) - normed.min(-1)).reshape(-1)
    np.testing.assert_allclose(statistics["map"].ranges, ranges, rtol=1e-6)
    model = load_folded(source)
    smooth(model, statistics)
    ir.save(model, tmp_path / "smooth.onnx")
    divided, unchanged = run(tmp_path / "smooth.onnx", x)
    np.testing.assert_array_equal(divided, expected)  # powers of two keep all bits
    np.testing.assert_array_equal(unchanged, normed)  # the residual
    errors = []
    for given in ({}, statistics):
        target = tmp_path / f"int8-{len(given)}.onnx"
        quantize(source, target, Quantization("int8"), ["map"], statistics=given)
        errors.append(np.square(run(target, x)[0] - expected).mean())
    assert errors[1] < errors[0] / 4


def test_tokens_of_large_range_get_a_scale_of_their_own(tmp_path: Path) -> None:
    constants = {"weights": RNG.standard_normal((CHANNELS, 16)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "weights"], ["y"], name="map")]
    source = save_graph(tmp_path / "float.onnx", nodes, constants, {"y": 16})
    x = tokens(spread=50)
    x[1, 1] = 0  # a token without a range
    x[1, 2] = 3
    statistics = input_statistics(source, ["map"], [{"x": x}])
    model = load_folded(source)
    smooth(model, statistics)
    ir.save(model, tmp_path / "smooth.onnx")
    (expected,) = run(source, x)
    (divided,) = run(tmp_path / "smooth.onnx", x)
    np.testing.assert_allclose(divided, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    errors = []
    for given in ({}, statistics):
        target = tmp_path / f"int8-{len(given)}.onnx"
        quantize(source, target, Quantization("int8"), ["map"], statistics=given)
        errors.append(np.square(run(target, x)[0] - expected)[1:].mean())
    assert errors[1] < errors[0] / 20


def test_scales_are_powers_of_two_that_enlarge_nothing() -> None:
    magnitudes = np.array([0, 0.01, 1, 1, 1, 64], np.float32)
    scales = channel_scales(magnitudes, [np.ones((6, 2), np.float32)])
    assert scales.tolist() == [1, 1, 1, 1, 1, 8]  # the square root of 64 times the median


def test_weights_that_several_products_read_stay(tmp_path: Path) -> None:
    constants = {"weights": RNG.standard_normal((CHANNELS, CHANNELS)).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "weights"], ["y"], name="second"),
    ]
    source = save_graph(tmp_path / "float.onnx", nodes, constants, {"y": CHANNELS})
    assert input_statistics(source, ["first", "second"], [{"x": tokens()}]) == {}
