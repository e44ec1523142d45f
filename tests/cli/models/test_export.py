"""``zoo export``: default output, ``--only``, and what an export runs in."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from tests.inference.making import make_checkpoint
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.cli import cli
from zoo.conformance.verify import verify
from zoo.errors import UsageError
from zoo.hub.reference import resolve
from zoo.inference import load_session


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in the working directory, as a run writes it."""
    monkeypatch.chdir(tmp_path)
    return make_checkpoint(tmp_path / "books" / "model", num_layers=1).path


def zoo(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)))


def done(*arguments: object) -> str:
    result = zoo(*arguments)
    assert result.exception is None, result.exception
    return result.stdout


def assert_licence(export: Checkpoint, licence: str) -> None:
    assert export.manifest.licence == licence
    assert (export.path / "README.md").read_text().startswith(f"---\nlicense: {licence}\n")


def test_the_output_is_named_after_the_model_and_has_its_licence(
    model: Path, tmp_path: Path
) -> None:
    assert "wrote books-onnx" in done("export", "books/model")
    assert load_checkpoint(tmp_path / "books-onnx").is_export
    again = zoo("export", "books/model")
    assert isinstance(again.exception, UsageError) and "exists" in str(again.exception)
    done("export", "books/model", "--onnx", "--force", "--licence", "mit")
    assert_licence(load_checkpoint(tmp_path / "books-onnx"), "mit")
    assert load_checkpoint(model).manifest.licence == "apache-2.0"
    shutil.copytree(model, tmp_path / "mine")
    names = {"mine": "mine-onnx", "gpt2": "gpt2-onnx", "org/name": "name-onnx"}
    assert {ref: f"{resolve(ref).short_name}-onnx" for ref in names} == names


def test_only_int8_is_one_graph_that_runs(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done("export", model, "--only", "int8")
    export = load_checkpoint(tmp_path / "books-onnx")
    graphs = sorted(path.name for path in (export.path / "onnx").iterdir())
    assert graphs == ["model_quantized.onnx"]
    operators = {n.op_type for n in onnx.load(export.path / "onnx" / graphs[0]).graph.node}
    assert {"DynamicQuantizeLinear", "MatMulInteger"} & operators
    done("export", model, "--int8", "-o", "both")
    inputs = {"input_ids": np.array([[1, 2, 3]]), "attention_mask": np.ones((1, 3), np.int64)}
    sessions = [load_session(export), load_session(load_checkpoint(Path("both")), dtype="int8")]
    assert [session.dtype for session in sessions] == ["int8", "int8"]
    one, both = (session.run(inputs) for session in sessions)
    np.testing.assert_array_equal(one["last_hidden_state"], both["last_hidden_state"])
    failed = [check for check in verify(export.path, reference=False) if check.outcome == "failed"]
    assert failed == []
    with pytest.raises(UsageError, match=r"holds a graph in int8, not float32"):
        load_session(export, dtype="float32")
    caplog.set_level("INFO", "zoo")
    caplog.clear()
    load_session(load_checkpoint(Path("both")))
    said = [record.getMessage() for record in caplog.records if record.name == "zoo"]
    assert said == ["both: the graph in float32; --dtype selects int8"]


# Another target shows it below, and another test has the graph in int8.
@pytest.mark.long
def test_int8_is_short_for_the_dtype(model: Path, tmp_path: Path) -> None:
    for output, options in {"short": ("--int8",), "long": ("--dtype", "int8")}.items():
        done("export", model, *options, "-o", output)
    listed = [
        {path.name: path.stat().st_size for path in Path(output, "onnx").iterdir()}
        for output in ("short", "long")
    ]
    assert listed[0] == listed[1] and set(listed[0]) == {"model.onnx", "model_quantized.onnx"}


# The option is read before the target, and CTranslate2 is the faster one.
@pytest.mark.parametrize("name", [pytest.param("openvino", marks=pytest.mark.long), "ctranslate2"])
def test_int8_is_a_precision_of_other_targets(name: str, model: Path) -> None:
    options = ("--to", name, "--max-drop", 1)
    for output, dtype in {"short": ("--int8",), "long": ("--dtype", "int8")}.items():
        done("export", model, *options, *dtype, "-o", f"{name}-{output}")
        record = load_checkpoint(Path(f"{name}-{output}")).manifest.export or {}
        assert record["dtype"] == "int8" and record["agreement"]["drop"] <= 1


def test_a_changed_card_is_not_replaced(model: Path, small_export: Path, tmp_path: Path) -> None:
    shutil.copytree(small_export / "export", tmp_path / "graph")
    card = tmp_path / "graph" / "README.md"
    card.write_text(card.read_text() + "Mine.\n")
    refused = zoo("export", model, "-o", "graph", "--force")
    assert "README.md, changed after zoo wrote it" in str(refused.exception)
    assert card.read_text().endswith("Mine.\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dtype", "float16", "--int8"), "copies are made of a graph in float32, not float16"),
        (("--dtype", "q8"), "ONNX Runtime has no precision 'q8'"),
        (("--only", "int8", "--int4"), "--only int8 leaves out what --int4 adds"),
        (("--only", "int4"), "int4 is for models that generate text"),
    ],
)
def test_wrong_dtypes_are_one_line(
    model: Path, tmp_path: Path, options: tuple[Any, ...], message: str
) -> None:
    assert message in str(zoo("export", model, *options).exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["books"]
