"""Outliers of activations, moved out of the way before activations are quantized.

A graph that quantizes its activations in each run has one scale for all tokens and channels of a
batch, which the largest numbers decide. Two changes, both equal in float32, make it finer:

* Products with more outputs than inputs, of queries, keys and values or the first of a feed-forward
  layer, read large numbers in the same channels for any text. Each channel is divided by a number,
  and the row of the weights that reads it is multiplied by the same: SmoothQuant (Xiao et al. 2022,
  arXiv:2211.10438, equation 4 with an exponent of 1/2). Numbers are powers of two, so that products
  in float32 keep their bits, and no channel is enlarged, since one that is small in all texts at
  hand may not be so in others. In the paper, the division is part of the norm before. In models
  whose norms follow the sums, the residual reads the norm as well, so that it is a node here.
* A product with fewer outputs than inputs, the second of a feed-forward layer, reads large numbers
  of a few tokens. There, each token is divided by the range of its numbers, and its outputs are
  multiplied by it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from zoo.exporting.quantization.constants import add_constant, constant_weights, load_folded
from zoo.inference.ort.runtime import create_session
from zoo.io.scratch import scratch_directory

# Smaller magnitudes of a channel, and ranges of a token, count as this, so that none is 0.
SMALLEST = 1e-5
# Tokens are divided by their ranges where the largest one is more than this multiple of the median.
# The second products of all-MiniLM-L6-v2 have between 3 and 8; those of its first three layers,
# with over 6, lose most, and dividing in the others would cost a twentieth of the speed for little.
SPREAD = 6.0


class InputStatistics(NamedTuple):
    """What products read, on texts."""

    magnitudes: NDArray[np.float32]  # (channels,), the largest magnitude of each channel
    ranges: NDArray[np.float32]  # (tokens,), from the lowest number of each token to its largest

    @property
    def spread(self) -> float:
        """Largest range of a token, as a multiple of the median."""
        return float(self.ranges.max() / max(float(np.median(self.ranges)), SMALLEST))


def input_statistics(
    graph: Path, nodes: Collection[str], batches: Iterable[Mapping[str, NDArray[Any]]]
) -> dict[str, InputStatistics]:
    """Return node -> statistics of its input, of products with constant weights of their own.

    Args:
        graph: a graph in float32 without a key-value cache.
        nodes: names of nodes; those that are not such products are left out.
        batches: inputs of the graph.
    """
    model = load_folded(graph)
    inputs: dict[str, str] = {}  # node -> name of its input, which several products may share
    for node in list(model.graph):
        features = node.inputs[0] if node.name in nodes else None
        if features is None or _own_weights(node) is None:
            continue
        if features.name not in inputs.values():
            _add_outputs(model.graph, features)
        inputs[str(node.name)] = str(features.name)
    if not inputs:
        return {}
    names = list(dict.fromkeys(inputs.values()))
    outputs = [output for name in names for output in _output_names(name)]
    runs: list[list[NDArray[np.float32]]] = []
    with scratch_directory() as scratch:
        path = scratch / graph.name
        ir.save(model, path, external_data=f"{path.name}_data")
        session = create_session(path)
        input_names = {value.name for value in session.get_inputs()}
        for batch in batches:
            arrays = {name: array for name, array in batch.items() if name in input_names}
            runs.append(session.run(outputs, arrays))
    statistics = {}
    for number, name in enumerate(names):
        magnitudes = np.max([run[2 * number] for run in runs], axis=0)
        ranges = np.concatenate([run[2 * number + 1] for run in runs])
        statistics[name] = InputStatistics(magnitudes, ranges)
    return {node: statistics[name] for node, name in inputs.items()}


def smooth(model: ir.Model, statistics: Mapping[str, InputStatistics]) -> None:
    """Divide the inputs of products by channels or tokens, and undo it after them, in place.

    Args:
        model: the graph.
        statistics: node -> statistics of its input, of the products that are quantized.
    """
    readers: dict[ir.Value, list[ir.Node]] = {}
    for node in model.graph:
        features = node.inputs[0] if node.name in statistics else None
        if features is not None and _own_weights(node) is not None:
            readers.setdefault(features, []).append(node)
    for features, products in readers.items():
        features_statistics = statistics[str(products[0].name)]
        weights = [values for node in products if (values := _own_weights(node)) is not None]
        channels = len(features_statistics.magnitudes)
        outputs = sum(values.shape[1] for values in weights)
        if outputs > channels:
            _divide_channels(model.graph, features, products, features_statistics.magnitudes)
        elif outputs < channels and features_statistics.spread > SPREAD:
            _divide_tokens(model.graph, features, products[0])


def channel_scales(
    magnitudes: NDArray[np.float32], weights: Sequence[NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Return what each channel of an input is divided by, a power of two, (channels,).

    Args:
        magnitudes: largest magnitude of each channel of the input, (channels,).
        weights: matrices that are multiplied with it, (channels, out).
    """
    rows = np.max([np.abs(values).max(1) for values in weights], axis=0)
    exponents = np.log2(np.maximum(magnitudes, SMALLEST) / np.maximum(rows, SMALLEST)) / 2
    exponents = np.maximum(np.rint(exponents - np.median(exponents)), 0)
    scales: NDArray[np.float32] = np.exp2(exponents).astype(np.float32)
    return scales


def _divide_channels(
    graph: ir.Graph,
    features: ir.Value,
    products: Sequence[ir.Node],
    magnitudes: NDArray[np.float32],
) -> None:
    first = products[0]
    weights = [values for node in products if (values := _own_weights(node)) is not None]
    scales = channel_scales(magnitudes, weights)
    if (scales == 1).all():
        return
    inverse = add_constant(graph, f"{first.name}.inverse_scales", 1 / scales)
    divided = ir.node("Mul", [features, inverse], name=f"{first.name}.smooth")
    graph.insert_before(first, divided)
    for node, values in zip(products, weights, strict=True):
        multiplied = add_constant(graph, f"{node.name}.smooth_weights", values * scales[:, None])
        node.replace_input_with(0, divided.outputs[0])
        node.replace_input_with(1, multiplied)


def _divide_tokens(graph: ir.Graph, features: ir.Value, product: ir.Node) -> None:
    name = str(product.name)
    axis = add_constant(graph, f"{name}.channels", np.array([-1]))
    # With 0 in its range, no number of a token becomes larger than 1.
    smallest = add_constant(graph, f"{name}.smallest", np.array(SMALLEST, np.float32))
    zero = add_constant(graph, f"{name}.zero", np.array(0, np.float32))
    maximum = ir.node("ReduceMax", [features, axis], name=f"{name}.maximum")
    upper_end = ir.node("Max", [maximum.outputs[0], smallest], name=f"{name}.upper_end")
    minimum = ir.node("ReduceMin", [features, axis], name=f"{name}.minimum")
    lower_end = ir.node("Min", [minimum.outputs[0], zero], name=f"{name}.lower_end")
    ranges = ir.node("Sub", [upper_end.outputs[0], lower_end.outputs[0]], name=f"{name}.ranges")
    divided = ir.node("Div", [features, ranges.outputs[0]], name=f"{name}.smooth")
    graph.insert_before(product, [maximum, upper_end, minimum, lower_end, ranges, divided])
    product.replace_input_with(0, divided.outputs[0])
    output = product.outputs[0]
    multiplied = ir.node("Mul", [output, ranges.outputs[0]], name=f"{name}.smoothed")
    multiplied.outputs[0].type = output.type
    multiplied.outputs[0].shape = output.shape
    output.replace_all_uses_with(multiplied.outputs[0], replace_graph_outputs=True)
    multiplied.replace_input_with(0, output)
    graph.insert_after(product, multiplied)


def _own_weights(node: ir.Node) -> NDArray[np.float32] | None:
    """Return the constant weights of a product that no other node reads, (channels, out)."""
    weights = node.inputs[1] if node.op_type == "MatMul" else None
    if weights is None or constant_weights(weights) is not weights or len(weights.uses()) > 1:
        return None
    assert weights.const_value is not None, "it is a constant"
    values: NDArray[np.float32] = weights.const_value.numpy()
    return values


def _output_names(features: str) -> tuple[str, str]:
    return f"{features}.magnitudes", f"{features}.ranges"


def _add_outputs(graph: ir.Graph, features: ir.Value) -> None:
    """Add the statistics of a value as outputs of a graph."""
    outputs = []
    for name in _output_names(str(features.name)):
        outputs.append(ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT)))
    magnitudes, ranges = outputs
    token_axis = add_constant(graph, f"{magnitudes.name}.axis", np.array([0]))
    channel_axis = add_constant(graph, f"{ranges.name}.axis", np.array([-1]))
    rows = ir.node("Flatten", [features], attributes={"axis": -1})  # (tokens, channels)
    absolutes = ir.node("Abs", rows.outputs)
    options = {"keepdims": 0}
    channel_maximum = ir.node(
        "ReduceMax", [absolutes.outputs[0], token_axis], attributes=options, outputs=[magnitudes]
    )
    maximum = ir.node("ReduceMax", [rows.outputs[0], channel_axis], attributes=options)
    minimum = ir.node("ReduceMin", [rows.outputs[0], channel_axis], attributes=options)
    difference = ir.node("Sub", [maximum.outputs[0], minimum.outputs[0]], outputs=[ranges])
    graph.extend([rows, absolutes, channel_maximum, maximum, minimum, difference])
    graph.outputs.extend(outputs)
