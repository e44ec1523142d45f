"""Quantized copies of graphs: int8 products, dynamic or static, int4 products, and int8 tables."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from zoo.checkpoint import DATA
from zoo.exporting.graph.trace import silence
from zoo.exporting.quantization.constants import add_constant, constant_weights, load_folded
from zoo.exporting.quantization.plan import Quantization
from zoo.exporting.quantization.smoothing import InputStatistics, smooth
from zoo.exporting.quantization.split_products import split_products
from zoo.io.limits import MAX_ONNX_FOLDED_BYTES
from zoo.io.scratch import scratch_directory

Inputs = Mapping[str, NDArray[Any]]
TABLE_SUFFIX = ".int8"  # of the name of a table
MIN_TABLE_SIZE = 1 << 10  # number of elements; smaller tables save nothing


def quantizable(graph: Path) -> list[str]:
    """Return the names of products with constant weights and of embeddings, in order."""
    names = []
    for node in _nodes(load_folded(graph).graph):
        is_product = node.op_type == "MatMul" and constant_weights(node.inputs[1]) is not None
        if is_product or _is_table(node):
            names.append(str(node.name))
    return names


def _nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield the nodes of a graph and of its branches, not of loops: each turn would round again."""
    for node in graph:
        yield node
        if node.op_type == "If":
            for branch in node.attributes.values():
                yield from branch.as_graph()


def quantize(
    source: Path,
    target: Path,
    method: Quantization,
    nodes: Collection[str],
    *,
    calibration: Iterable[Inputs] = (),
    statistics: Mapping[str, InputStatistics] | None = None,
    external: bool = False,
) -> None:
    """Write a copy of a graph in float32 with the weights of some nodes quantized.

    Products are quantized by ``onnxruntime.quantization``. Its embeddings have one scale for the
    whole table; here each row has its own, which keeps vectors of rare tokens and costs four bytes
    a row. All int8 graphs consist of standard operators; int4 products are
    ``com.microsoft.MatMulNBits``.

    Args:
        source: the graph in float32.
        target: file to write.
        method: how weights are quantized.
        nodes: names of the products and embeddings to quantize; see ``quantizable``.
        calibration: inputs for static scales.
        statistics: node -> what a product reads, by which outliers are moved out of the way; see
            ``zoo.exporting.quantization.smoothing``. Products that are split then become several.
            ``None`` changes nothing.
        external: whether the weights get a file of their own.
    """
    with scratch_directory() as scratch, silence():
        prepared = scratch / "prepared.onnx"
        quantized = scratch / "quantized.onnx"
        model = load_folded(source)
        version = model.ir_version
        for node in list(model.graph):
            weights = node.inputs[1] if node.op_type == "Gemm" else None
            if weights is not None and weights.is_initializer():
                _split_gemm(model.graph, node)
        products: list[str] = []
        for node in [node for node in _nodes(model.graph) if node.name in nodes]:
            if node.op_type == "MatMul":
                products.append(str(node.name))
            if _is_table(node):
                _quantize_table(model.graph, node)
            else:
                _fold_transpose(model.graph, node)
        if statistics is not None:
            smooth(model, {name: statistics[name] for name in products if name in statistics})
            products = split_products(model.graph, products)
        _drop_unused(model)  # calibration warns of tables that their int8 rows replaced
        ir.save(model, prepared, external_data=f"{prepared.name}_data")
        if products:
            _quantize_products(prepared, quantized, method, products, calibration)
        result = ir.load(quantized if products else prepared)
        ir.external_data.load_to_model(result)  # the files it refers to are temporary
    result.ir_version = version
    with silence():
        _drop_zero_points(result.graph)
        _move_into_branches(result.graph)
        _share_tables(result.graph)
        _drop_unused(result)
        external_data = target.with_suffix(DATA).name if external else None
        ir.save(result, target, external_data=external_data)


def _quantize_products(
    source: Path,
    target: Path,
    method: Quantization,
    nodes: list[str],
    calibration: Iterable[Inputs],
) -> None:
    from onnxruntime import quantization as ort

    common: dict[str, Any] = {
        "op_types_to_quantize": ["MatMul"],
        "per_channel": True,
        "weight_type": ort.QuantType.QInt8,
        "nodes_to_quantize": nodes,
        "use_external_data_format": True,
    }
    if method.dtype == "int4":
        _quantize_blocks(source, target, method.block_size, nodes)
    elif method.static:
        ort.quantize_static(
            source,
            target,
            _reader(calibration),
            quant_format=ort.QuantFormat.QDQ,
            activation_type=ort.QuantType.QUInt8,
            extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul"]},
            **common,
        )
    else:
        branches = {"EnableSubgraph": True}
        ort.quantize_dynamic(source, target, extra_options=branches, **common)


def _quantize_blocks(source: Path, target: Path, block_size: int, nodes: list[str]) -> None:
    """Quantize the weights of products to 4 bits, in blocks along the inner axis."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    names = {str(node.name) for node in ir.load(source).graph.all_nodes()}
    model = onnx.load(source)
    quantizer = MatMulNBitsQuantizer(
        model,
        block_size=block_size,
        accuracy_level=4,  # activations are rounded to int8, which CPUs multiply fastest
        nodes_to_exclude=list(names.difference(nodes)),
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(target), True)


def _reader(calibration: Iterable[Inputs]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """The inputs, one after another."""

        batches = iter(calibration)

        def get_next(self) -> dict[str, NDArray[Any]] | None:
            batch = next(self.batches, None)
            return None if batch is None else dict(batch)

    return Reader()


def _is_table(node: ir.Node) -> bool:
    table = node.inputs[0] if node.op_type == "Gather" else None
    values = table.const_value if table is not None and table.is_initializer() else None
    if values is None or values.dtype != ir.DataType.FLOAT or len(values.shape) != 2:
        return False
    by_row = "axis" not in node.attributes or node.attributes["axis"].as_int() == 0
    return by_row and values.size >= MIN_TABLE_SIZE


def _split_gemm(graph: ir.Graph, node: ir.Node) -> None:
    """Replace a linear map of (rows, size) by a product and a sum, both in float32.

    Poolers and classifiers are such maps, of one row a text: small, and not in the vectors by which
    graphs are compared. ``quantize_dynamic`` also replaces them, but then rejects weights that it
    transposed and that are not square.
    """
    features, weights, *bias = node.inputs
    assert weights is not None and weights.const_value is not None, "maps of constants are split"
    values = weights.const_value.numpy()
    if "transB" in node.attributes and node.attributes["transB"].as_int():
        values = np.ascontiguousarray(values.T)
    constant = add_constant(graph, f"{node.name}.transposed", values)
    nodes = [ir.node("MatMul", [features, constant], name=node.name)]
    if bias:  # the exporter drops one that is 0
        nodes.append(ir.node("Add", [nodes[0].outputs[0], *bias], name=f"{node.name}.bias"))
    _replace(graph, node, nodes)


def _replace(graph: ir.Graph, node: ir.Node, nodes: list[ir.Node]) -> None:
    """Replace a node by others; the last one has its output."""
    output = node.outputs[0]
    result = nodes[-1].outputs[0]
    result.name = output.name
    result.type = output.type
    result.shape = output.shape
    graph.insert_before(node, nodes)
    output.replace_all_uses_with(result, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def _fold_transpose(graph: ir.Graph, node: ir.Node) -> None:
    """Give a product a transposed copy of its weights, which it shares with an embedding."""
    value = node.inputs[1]
    assert value is not None, "a product has weights"
    maker = value.producer()
    if maker is None:
        return
    (shared,) = maker.inputs
    assert shared is not None and shared.const_value is not None, "see quantizable"
    name = f"{shared.name}.transposed"
    if name not in graph.initializers:  # several products may have the same weights
        add_constant(graph, name, np.ascontiguousarray(shared.const_value.numpy().T))
    node.replace_input_with(1, graph.initializers[name])


def _quantize_table(graph: ir.Graph, node: ir.Node) -> None:
    """Replace an embedding by one of int8 rows and their scales, which standard operators read."""
    table, ids = node.inputs
    assert table is not None and table.const_value is not None and ids is not None
    values = table.const_value.numpy()
    scales = np.maximum(np.abs(values).max(1, keepdims=True), np.finfo(np.float32).tiny) / 127
    rows = np.rint(values / scales).astype(np.int8)
    name = str(node.name)
    row = ir.node(
        "Gather", [add_constant(graph, f"{name}{TABLE_SUFFIX}", rows), ids], name=f"{name}.row"
    )
    scale = ir.node(
        "Gather", [add_constant(graph, f"{name}.scale", scales), ids], name=f"{name}.by"
    )
    cast = ir.node(
        "Cast", row.outputs, attributes={"to": int(ir.DataType.FLOAT)}, name=f"{name}.float"
    )
    product = ir.node("Mul", [cast.outputs[0], scale.outputs[0]], name=name)
    _replace(graph, node, [row, scale, cast, product])


def _drop_zero_points(graph: ir.Graph) -> None:
    """Remove the zero points of weights that are 0, their default."""
    # ONNX Runtime multiplies faster by weights without zero points than by those with one a column
    for node in list(graph.all_nodes()):
        zero_points = node.inputs[3] if len(node.inputs) > 3 else None
        if node.op_type != "MatMulInteger" or zero_points is None:
            continue
        tensor = ir.convenience.get_const_tensor(zero_points)
        if tensor is not None and not tensor.numpy().any():
            assert isinstance(node.graph, ir.Graph), "a graph or a branch has the node"
            _replace(node.graph, node, [ir.node(node.op_type, node.inputs[:3], name=node.name)])


def _move_into_branches(graph: ir.Graph) -> None:
    """Move what only one branch reads into it: scales of activations, and constants.

    ``quantize_dynamic`` leaves them outside, where scales are computed in each run, also in those
    that take another branch. ONNX Runtime makes the unsigned weights that are exact on CPUs without
    VNNI only of constants inside; see ``zoo.inference.ort.saturation``.
    """
    for node in list(graph):
        if node.op_type != "DynamicQuantizeLinear":
            continue
        branch = _only_reader(graph, node.outputs)
        if branch is not None:
            graph.remove(node)
            branch.insert_before(branch[0], node)
    for name, value in list(graph.initializers.items()):
        branch = _only_reader(graph, [value])
        if branch is not None:
            branch.register_initializer(graph.initializers.pop(name))


def _share_tables(graph: ir.Graph) -> None:
    """Let products read their weights from the int8 table whose transpose they are.

    The rows of the table and the columns of the product have the same scales and integers. ONNX
    Runtime transposes the table once, when it loads the graph; sessions of zoo limit the size.
    """
    tables = [value for name, value in graph.initializers.items() if name.endswith(TABLE_SUFFIX)]
    for node in list(graph):
        weights = node.inputs[1] if node.op_type == "MatMulInteger" else None
        table = next((table for table in tables if _is_transpose(weights, table)), None)
        if table is not None:
            name = f"{table.name}.transposed"
            transposed = ir.node("Transpose", [table], {"perm": [1, 0]}, name=name)
            graph.insert_before(node, transposed)
            node.replace_input_with(1, transposed.outputs[0])


def _is_transpose(weights: ir.Value | None, table: ir.Value) -> bool:
    rows = table.const_value
    values = None if weights is None else weights.const_value
    if rows is None or values is None or rows.size > MAX_ONNX_FOLDED_BYTES:
        return False
    equal_shapes = tuple(rows.shape) == tuple(values.shape)[::-1]
    return equal_shapes and np.array_equal(rows.numpy().T, values.numpy())


def _only_reader(graph: ir.Graph, values: Sequence[ir.Value]) -> ir.Graph | None:
    """Return the branch of a graph that has all readers of values, if it is one."""
    readers = {user.graph for value in values for user, _ in value.uses()}
    if len(readers) != 1 or any(value.is_graph_output() for value in values):
        return None
    (branch,) = readers
    return branch if isinstance(branch, ir.Graph) and branch is not graph else None


def _drop_unused(model: ir.Model) -> None:
    """Remove nodes and constants that nothing reads any more."""
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    RemoveUnusedNodesPass()(model)
