"""OpenVINO IR from the ONNX graph of a model."""

import contextlib
import errno
import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
import openvino
from openvino import opset13 as opset

from zoo.checkpoint import GRAPH, Checkpoint
from zoo.errors import VerificationError
from zoo.exporting.graph.onnx_file import EXTERNAL_OVER
from zoo.exporting.graph.opsets import check_opset
from zoo.exporting.graph.write import write_graphs
from zoo.exporting.quantization.search import MixedPrecisionModel
from zoo.io.files import open_regular
from zoo.io.scratch import scratch_directory
from zoo.overrides import override

HEAD_BYTES = 4096  # of a file, which are enough for its first element
MODEL = "openvino_model.xml"  # next to it are the weights, in a ``.bin``


def write_ir(checkpoint: Checkpoint, folder: Path, precision: str) -> None:
    """Write the IR of a checkpoint into a new folder."""
    folder.mkdir()
    with scratch_directory(folder.parent) as scratch:
        spec = checkpoint.onnx_spec
        write_graphs(
            checkpoint,
            spec,
            scratch,
            opset=check_opset(None),
            dtype="float32",
            cache=False,
            external_over=EXTERNAL_OVER,
        )
        model = read_model(scratch / GRAPH)
        if precision == "int8":
            compress_weights(model, quantizable(model))
        _save(model, folder / MODEL, compress_to_fp16=precision == "float16")
        del model  # it maps the files of the graph


class MixedPrecisionIr(MixedPrecisionModel[str]):
    """The IR of a checkpoint in float32, copies of which are compressed."""

    def __init__(self, checkpoint: Checkpoint, folder: str) -> None:
        with ExitStack() as stack:
            self._source = stack.enter_context(scratch_directory()) / "float32"
            self._folder = folder
            write_ir(checkpoint, self._source, "float32")
            self.layers = [name for name, *_ in quantizable(read_model(self._source / MODEL))]
            self._scratch = stack.pop_all()

    @override
    def write(self, directory: Path, quantized: Collection[str]) -> None:
        model = read_model(self._source / MODEL)
        compress_weights(model, [one for one in quantizable(model) if one[0] in quantized])
        (directory / self._folder).mkdir()
        _save(model, directory / self._folder / MODEL, compress_to_fp16=False)

    @override
    def close(self) -> None:
        self._scratch.close()


def _save(model: Any, path: Path, *, compress_to_fp16: bool) -> None:
    try:
        openvino.save_model(model, str(path), compress_to_fp16=compress_to_fp16)
    except RuntimeError as error:
        if "iostream" not in str(error):
            raise
        # OpenVINO does not say why. It has removed its files, so that the disk has room again.
        code = errno.ENOSPC
        raise OSError(code, os.strerror(code), str(path)) from error


def quantizable(model: Any) -> list[tuple[str, Any, int, int]]:
    """Return name, node, input and axis of the scales, of the linear maps and embeddings."""
    found = []
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind == "MatMul":
            place = 1
            along = 1 if node.get_attributes()["transpose_b"] else 0
        elif kind == "Gather":
            place = 0
            along = 1
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


def require_ir(path: Path) -> None:
    """Raise an error if a file is not an IR.

    OpenVINO would try the formats of other libraries, whose parsers print what they read.
    """
    elements = list[tuple[str, dict[str, str]]]()
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: elements.append((name, attributes))
    with open_regular(path) as file:
        head = file.read(HEAD_BYTES)
    with contextlib.suppress(expat.ExpatError):  # what follows the first element may be cut off
        parser.Parse(head, False)
    name, attributes = elements[0] if elements else ("", {})
    if name != "net" or not attributes.get("version", "").isdigit():
        raise VerificationError(f"{path} is not an IR of OpenVINO", "export it again")


def read_model(path: Path) -> Any:
    """Read a graph or IR."""
    if path.suffix == ".xml":
        require_ir(path)
    try:
        return openvino.Core().read_model(str(path))
    except (RuntimeError, ValueError) as error:  # or its message, which may not be UTF-8
        line = " ".join(str(error).split())
        raise VerificationError(
            f"{path}: OpenVINO {openvino.__version__.partition('-')[0]} refuses it: {line:.300}",
            "export it again",
        ) from error
