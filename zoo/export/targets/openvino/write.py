"""OpenVINO IR from the ONNX graph of a model."""

import tempfile
from pathlib import Path
from typing import Any

import openvino

from zoo.checkpoint import GRAPH, Checkpoint
from zoo.errors import VerificationError
from zoo.export.graph.onnx_file import EXTERNAL_OVER, check_opset
from zoo.export.graph.write import write_graphs

MODEL = "openvino_model.xml"  # next to it are the weights, in a ``.bin``


def write_ir(checkpoint: Checkpoint, folder: Path, precision: str) -> None:
    """Write the IR of a checkpoint into a new folder."""
    folder.mkdir()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".onnx-") as scratch:
        spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
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
        openvino.save_model(model, str(folder / MODEL), compress_to_fp16=precision == "float16")
        del model  # it maps the files of the graph


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
