"""The target ONNX writes and opens directories, like the others."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.exporting.conftest import with_tokenizer
from tests.inference.making import draw_batch, make_checkpoint
from zoo.checkpoint import load_checkpoint
from zoo.errors import VerificationError
from zoo.exporting.gate import export_model
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.exporting.targets.onnx import Onnx
from zoo.exporting.targets.onnx.options import OnnxOptions
from zoo.inference import load_session


def test_what_is_written_is_opened(tmp_path: Path) -> None:
    """The directory that is given is read, and no other one."""
    first, second = (
        make_checkpoint(tmp_path / name, num_layers=layers)
        for name, layers in (("first", 1), ("second", 2))
    )
    batch = draw_batch([5, 3])
    target = Onnx()
    for checkpoint in (first, second):
        directory = tmp_path / f"{checkpoint.path.name}-graphs"
        directory.mkdir()
        target.write(checkpoint, directory, "float32")
        outputs = target.open(checkpoint, directory, "float32").run(batch)
        expected = load_session(checkpoint, "cpu").run(batch)
        np.testing.assert_allclose(
            outputs["last_hidden_state"], expected["last_hidden_state"], rtol=0, atol=1e-5
        )
    crossed = target.open(first, tmp_path / "second-graphs", "float32").run(batch)
    np.testing.assert_array_equal(crossed["last_hidden_state"], outputs["last_hidden_state"])


def test_all_layers_are_written_in_8_bits(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1)
    directory = tmp_path / "graphs"
    directory.mkdir()
    Onnx().write(checkpoint, directory, "int8")
    files = [path.relative_to(directory).as_posix() for path in directory.rglob("*.onnx")]
    assert files == ["onnx/model_quantized.onnx"]
    graph = onnx.load(directory / files[0]).graph
    assert sum(node.op_type == "MatMulInteger" for node in graph.node) == 4
    # The pooler reads one row of a text, and stays in float32.
    weights = {tensor.name for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "MatMul"]
    assert [node.input[0] for node in products if node.input[1] in weights] == ["select"]
    batch = draw_batch([5, 3])
    outputs = Onnx().open(checkpoint, directory, "int8").run(batch)["last_hidden_state"]
    expected = load_session(checkpoint, "cpu").run(batch)["last_hidden_state"]
    cosine = np.vdot(outputs, expected) / np.linalg.norm(outputs) / np.linalg.norm(expected)
    assert cosine > 0.99
    with pytest.raises(VerificationError, match="holds no graph in float32; export it again"):
        Onnx().open(checkpoint, directory, "float32")


@pytest.mark.long
def test_the_record_is_that_of_every_target(tmp_path: Path) -> None:
    checkpoint = with_tokenizer(tmp_path / "model", "none")
    target = find_target("onnx", OnnxOptions(optimize=True))
    report = export_model(
        target, checkpoint, tmp_path / "export", ExportSettings(precision="float16")
    )
    record = load_checkpoint(tmp_path / "export").manifest.export or {}
    assert record == report.to_dict()
    assert (record["target"], record["title"]) == ("onnx", "ONNX Runtime")
    assert record["files"] == ["onnx/model_fp16.onnx"]
    size = (tmp_path / "export" / "onnx" / "model_fp16.onnx").stat().st_size
    assert record["bytes"] == size
    assert record["validated"] and record["max_rel"] <= record["tolerance"] == 2e-2
    assert record["traced"] == [2, 8] and [2, 8] not in [
        [check["batch"], check["tokens"]] for check in record["checks"]
    ]
