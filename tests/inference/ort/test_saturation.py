"""Integer products of quantized graphs, against exact arithmetic and the flags of the CPU."""

import platform
from pathlib import Path

import numpy as np
import onnx
import pytest

from zoo.exporting.quantization.plan import Quantization
from zoo.exporting.quantization.quantize import quantize
from zoo.inference.ort.runtime import create_session, run_graph
from zoo.inference.ort.saturation import saturates

CPU_FLAGS = Path("/proc/cpuinfo")


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
def test_products_of_large_integers_are_exact(static: bool, rows: int, tmp_path: Path) -> None:
    """Weights of +-1 are +-127 in int8, and inputs of 0 to 255 are themselves in uint8."""
    rng = np.random.default_rng(0)
    weights = rng.choice(np.array([-1, 1], np.float32), (64, 24))
    weights[:, 0] = 1
    inputs = rng.integers(200, 256, (rows, 64)).astype(np.float32)
    inputs[0, :2] = 0, 255  # the range, from which the scale 1 and the zero point 0 follow
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", size])
        for name, size in (("x", 64), ("y", 24))
    )
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    constants = [onnx.numpy_helper.from_array(weights, "w")]
    graph = onnx.helper.make_graph([node], "graph", [x], [y], constants)
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8
    )
    onnx.save(model, tmp_path / "float32.onnx")
    method = Quantization("int8", static=static)
    calibration = [{"x": inputs}] if static else []
    source, target = tmp_path / "float32.onnx", tmp_path / "int8.onnx"
    quantize(source, target, method, ["product"], calibration=calibration)
    products = run_graph(create_session(target), {"x": inputs}, ["y"])["y"]
    assert np.abs(products - inputs.astype(np.float64) @ weights).max() < 0.01


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not CPU_FLAGS.is_file(),
    reason="the flags of the CPU are read on Linux on x86",
)
def test_cpus_without_vnni_saturate() -> None:
    lines = CPU_FLAGS.read_text().splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).split())
    exact = flags & {"avx512_vnni", "avx_vnni", "amx_int8"}
    assert saturates() == (not exact and "avx2" in flags)
