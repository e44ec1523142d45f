"""Times of single operators of ONNX Runtime on a CPU: norms after sums, and activations.

    python -m benchmarks.onnx_operators [--width 384] [--rows 512] [--threads 1]

A sum and a norm are two operators, or one that is made from them (``SkipLayerNormalization``);
a product's bias and an activation likewise. ``zoo.exporting.graph.fuse`` and
``zoo.inference.ort.runtime`` use what is faster. The results of both must be equal to 1e-5.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from benchmarks._common import alternate, compare, machine, versions

CONTRIB = "com.microsoft"
AGREE = 1e-5
REPEATS = 50  # runs per timing
OPSET = 18
Run = Callable[[], NDArray[np.float32]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    node = helper.make_node
    shape = [1, options.rows, options.width]
    total = node("Add", ["x", "y"], ["sum"])
    norm = node("LayerNormalization", ["sum", "w", "b"], ["out"], epsilon=1e-6)
    rms = node("SimplifiedLayerNormalization", ["sum", "w"], ["out"], epsilon=1e-6)
    biased = node("Add", ["x", "b"], ["sum"])
    groups = {
        "sum and norm": [total, norm],
        "SkipLayerNormalization": [_fused("SkipLayerNormalization", "xywb", epsilon=1e-6)],
        "sum and RMS norm": [total, rms],
        "SkipSimplifiedLayerNormalization": [
            _fused("SkipSimplifiedLayerNormalization", "xyw", epsilon=1e-6)
        ],
        "bias and Gelu": [biased, node("Gelu", ["sum"], ["out"], domain=CONTRIB)],
        "BiasGelu": [_fused("BiasGelu", "xb")],
    }
    runs = {name: _graph(nodes, shape, options.threads) for name, nodes in groups.items()}
    print(f"{machine(options.threads)}. {versions('onnxruntime')}. Shape {shape}, float32.\n")
    names = list(runs)
    for plain, fused in zip(names[::2], names[1::2], strict=True):
        difference = float(np.abs(runs[plain]() - runs[fused]()).max())
        if not difference <= AGREE:
            sys.exit(f"{plain} and {fused} differ by {difference:.1e}")
        pair = {name: _repeated(runs[name]) for name in (plain, fused)}
        print(f"{compare(alternate(pair, rounds=options.rounds), plain)}\n")


def _fused(operator: str, inputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, list(inputs), ["out"], domain=CONTRIB, **attributes)


def _graph(nodes: Sequence[NodeProto], shape: list[int], threads: int) -> Run:
    """Return a function that runs nodes on random inputs, without graph optimizations."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape, np.float32) for name in "xy"}
    weights = {name: rng.standard_normal(shape[-1], np.float32) for name in "wb"}
    used = {name for node in nodes for name in node.input}
    arrays = {name: array for name, array in arrays.items() if name in used}
    graph = helper.make_graph(
        nodes,
        "operators",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in arrays],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if name in used],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers)
    return lambda: session.run(None, arrays)[0]


def _repeated(run: Run) -> Callable[[], Any]:
    def repeat() -> None:
        for _ in range(REPEATS):
            run()

    return repeat


if __name__ == "__main__":
    main()
