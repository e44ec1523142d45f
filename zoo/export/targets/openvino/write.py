"""OpenVINO IR from the ONNX graph of a model."""

import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as opset

from zoo.checkpoint import GRAPH, Checkpoint
from zoo.errors import VerificationError
from zoo.export.graph.onnx_file import EXTERNAL_OVER, check_opset
from zoo.export.graph.write import write_graphs
from zoo.export.targets.mixture import Mixture
from zoo.overrides import override

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
            compress_weights(model, quantizable(model))
        openvino.save_model(model, str(folder / MODEL), compress_to_fp16=precision == "float16")
        del model  # it maps the files of the graph


class IrMixture(Mixture):
    """The IR of a checkpoint in float32, copies of which are compressed."""

    def __init__(self, checkpoint: Checkpoint, folder: str) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self._folder, self._source = folder, Path(self._scratch.name) / "float32"
        write_ir(checkpoint, self._source, "float32")
        self.layers = [name for name, *_ in quantizable(read_model(self._source / MODEL))]

    @override
    def write(self, directory: Path, kept: Collection[str]) -> None:
        model = read_model(self._source / MODEL)
        compress_weights(model, [one for one in quantizable(model) if one[0] not in kept])
        (directory / self._folder).mkdir()
        openvino.save_model(model, str(directory / self._folder / MODEL), compress_to_fp16=False)

    @override
    def close(self) -> None:
        self._scratch.cleanup()


def quantizable(model: Any) -> list[tuple[str, Any, int, int]]:
    """Return name, node, input and axis of the scales, of the linear maps and embeddings."""
    found = []
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
        if np.asarray(weight.data).dtype == np.float32:
            found.append((node.get_friendly_name(), node, place, along))
    return found


def compress_weights(model: Any, layers: Sequence[tuple[str, Any, int, int]]) -> None:
    """Store matrices of linear maps and embeddings in 8 bits, with a scale for each row."""
    # OpenVINO multiplies them by their scales when it reads them, so that NNCF is not needed.
    for _, node, place, along in layers:
        values = np.asarray(node.input_value(place).get_node().data)
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
