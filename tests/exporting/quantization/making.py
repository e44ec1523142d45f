"""Small graphs that are quantized."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 64
RNG = np.random.default_rng(0)


def save_graph(
    path: Path,
    nodes: list[onnx.NodeProto],
    constants: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, int],
) -> Path:
    def value(name: str, size: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", "tokens", size])

    graph = helper.make_graph(
        nodes,
        "graph",
        [value("x", CHANNELS)],
        [value(name, size) for name, size in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def run(graph: Path, x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    session = onnxruntime.InferenceSession(graph)
    return list(session.run(None, {"x": x}))


def tokens(spread: float = 1.0) -> NDArray[np.float32]:
    x = RNG.standard_normal((4, 12, CHANNELS)).astype(np.float32)
    x[0, 0] *= spread
    return x
