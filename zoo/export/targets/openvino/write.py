"""OpenVINO IR from the ONNX graph of a model."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as opset

from zoo.checkpoint import GRAPH, Checkpoint
from zoo.errors import VerificationError
from zoo.export.graph.onnx_file import EXTERNAL_OVER, check_opset
from zoo.export.graph.write import write_graphs

MODEL = "openvino_model.xml"  # next to it are the weights, in a ``.bin``


def write_ir(checkpoint: Checkpoint, folder: Path, precision: str) -> None:
    """Write the IR of a checkpoint into a new folder."""
    folder.mkdir()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".onnx-") as scratch:
        spec = checkpoint.onnx_spec
        write_graphs(
            checkpoint,
            spec,
            Path(scratch),
            opset=check_opset(None),
            dtype="float32",
            cache=False,
            external_over=EXTERNAL_OVER,
        )
        model = read_model(Path(scratch) / GRAPH)
        if precision == "int8":
            compress_weights(model)
        openvino.save_model(model, str(folder / MODEL), compress_to_fp16=precision == "float16")
        del model  # it maps the files of the graph


def compress_weights(model: Any) -> None:
    """Store the matrices of linear maps and embeddings in 8 bits, with a scale for each row."""
    # OpenVINO multiplies them by their scales when it reads them, so that NNCF is not needed.
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind == "MatMul":
            place, along = 1, 1 if node.get_attributes()["transpose_b"] else 0
        elif kind == "Gather":
            place, along = 0, 1
        else:
            continue
        weight = node.input_value(place).get_node()
        if weight.get_type_name() != "Constant" or len(weight.shape) != 2:
            continue
        values = np.asarray(weight.data)
        if values.dtype != np.float32:
            continue
        scales = np.abs(values).max(along, keepdims=True) / 127
        scales[scales == 0] = 1
        stored = opset.constant(np.rint(values / scales).astype(np.int8))
        decompressed = opset.multiply(opset.convert(stored, "f32"), opset.constant(scales))
        node.input(place).replace_source_output(decompressed.output(0))


def read_model(path: Path) -> Any:
    """Read a graph or IR."""
    try:
        return openvino.Core().read_model(str(path))
    except RuntimeError as error:
        line = " ".join(str(error).split())
        raise VerificationError(
            f"{path}: OpenVINO {openvino.__version__.partition('-')[0]} refuses it: {line:.300}",
            "export it again",
        ) from error
