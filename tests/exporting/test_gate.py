"""The comparison that every export must pass; a wrong graph leaves no files."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.checkpoints import Make, hub_checkpoint
from tests.exporting.conftest import Exported
from tests.exporting.making import export_onnx
from tests.inference.conftest import converted
from tests.inference.making import make_checkpoint
from zoo.checkpoint import Checkpoint
from zoo.cli import cli
from zoo.errors import PluginError, UsageError, VerificationError
from zoo.exporting.report import ShapeCheck
from zoo.exporting.validate import batches, compare, difference, require_equal, run_reference
from zoo.families.base import Family
from zoo.families.onnx import OnnxSpec
from zoo.inference.load_model import load_model
from zoo.nn.heads import Pooler
from zoo_bert import Bert
from zoo_bert.model import build

__all__ = ["hub_checkpoint"]


def exporting(hidden: Tensor) -> bool:
    return bool(torch.compiler.is_exporting())


def longer_than_six(hidden: Tensor) -> bool:
    return hidden.shape[1] > 6  # the length of the traced example


def changed(when: Callable[[Tensor], bool]) -> Family:
    """Return a family whose models compute slightly different outputs under a condition."""

    class Changed(Pooler):
        def forward(self, hidden: Tensor) -> Tensor:
            return super().forward(hidden) + (0.01 if when(hidden) else 0.0)

    class ChangedFamily(Bert):
        def model(self, config: Any, head: str) -> nn.Module:
            model = build(config, head)
            model.pooler = Changed(config.hidden_size)
            return model

    return ChangedFamily()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return make_checkpoint(tmp_path / "model", num_layers=1)


@pytest.fixture
def no_trace(tmp_path: Path) -> Iterator[None]:
    """Check that a test leaves no file next to the model."""
    yield
    assert [name for name in os.listdir(tmp_path) if name != "zoo-home"] == ["model"]


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize(
    "condition", [pytest.param(exporting, marks=pytest.mark.long), longer_than_six]
)
def test_a_graph_that_computes_something_else(
    checkpoint: Checkpoint, tmp_path: Path, condition: Callable[[Tensor], bool]
) -> None:
    wrong = replace(checkpoint, family=changed(condition))
    with pytest.raises(VerificationError, match="pooler_output differs from torch") as caught:
        export_onnx(wrong, tmp_path / "parent" / "graph")
    assert caught.value.exit_code == 3
    assert "at 1 x 1 tokens, where 1e-04 is accepted; nothing was written" in str(caught.value)


@pytest.mark.parametrize("target", ["onnx", "openvino", "ctranslate2", "gguf"])
def test_a_row_that_overflows_in_float16_and_is_not_compared(
    target: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Outputs are compared for some tokens, and no other check reads the row of this one."""
    source = hub_checkpoint("BertModel", vocab_size=300)
    tensors = load_file(source / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][299] = 1e6
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    checkpoint = converted(source, tmp_path / "model")
    unverified = ["--unverified"] if target == "gguf" else []
    options = ["--to", target, "--dtype", "float16", "-o", str(tmp_path / "out"), *unverified]
    outcome = CliRunner().invoke(cli, ["export", str(checkpoint.path), *options])
    assert isinstance(outcome.exception, VerificationError)
    assert "embeddings.tokens.weight has values that do not fit into float16" in str(
        outcome.exception
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_trace")
def test_a_model_that_the_exporter_cannot_trace(checkpoint: Checkpoint, tmp_path: Path) -> None:
    wrong = replace(checkpoint, family=changed(lambda hidden: bool(hidden.sum() > 0)))
    with pytest.raises(VerificationError, match="the model cannot be exported: ") as caught:
        export_onnx(wrong, tmp_path / "graph")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_trace")
def test_outputs_that_the_family_misnames(checkpoint: Checkpoint, tmp_path: Path) -> None:
    class Family(Bert):
        def onnx(self, config: Any, head: str) -> OnnxSpec:
            spec = super().onnx(config, head)
            return replace(spec, outputs=dict(reversed(list(spec.outputs.items()))))

    with pytest.raises(PluginError, match="names the outputs pooler_output, last_hidden_state"):
        export_onnx(replace(checkpoint, family=Family()), tmp_path / "graph")


@pytest.mark.usefixtures("no_trace")
def test_weights_that_are_not_the_manifests(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = checkpoint.path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(VerificationError, match=r"model\.safetensors is not the file that"):
        export_onnx(checkpoint, tmp_path / "graph")


@pytest.mark.parametrize("tensor", ["embeddings.norm.bias", "layers.0.ffn.down.bias"])
def test_a_graph_with_one_number_changed(
    exported: Callable[[str], Exported], tmp_path: Path, tensor: str
) -> None:
    checkpoint, graph, _ = exported("none")
    spec = checkpoint.family.onnx(checkpoint.config, "none")
    reference = load_model(checkpoint, torch.float32)
    references = run_reference(reference, spec, checkpoint.config, (2, 8))
    model = onnx.load(graph.path / "onnx/model.onnx")
    target = next(t for t in model.graph.initializer if t.name == tensor)
    values = np.frombuffer(target.raw_data, np.float32).copy()
    values[3] += 0.01
    target.raw_data = values.tobytes()
    onnx.save(model, tmp_path / "changed.onnx")
    good = compare(references, graph.path / "onnx/model.onnx", spec)
    require_equal(good, 1e-4)
    bad = compare(references, tmp_path / "changed.onnx", spec)
    assert [check for check in bad if not check.worst > 1e-4] == []
    with pytest.raises(VerificationError, match="differs from torch"):
        require_equal(bad, 1e-4)


def test_an_export_is_replaced_only_by_force(
    exported: Callable[[str], Exported], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    target = tmp_path / "graph"
    target.mkdir()
    (target / "mine").write_text("precious")
    with pytest.raises(UsageError, match="give --force to replace it"):
        export_onnx(checkpoint, target)
    with pytest.raises(UsageError, match="is not from zoo: it holds mine"):
        export_onnx(checkpoint, target, force=True)
    assert (target / "mine").read_text() == "precious"
    shutil.rmtree(target)
    shutil.copytree(exported("none")[1].path, target)
    (target / "onnx/model.onnx").write_bytes(b"another graph")
    with pytest.raises(UsageError, match=r"holds onnx/model.onnx, changed after zoo wrote it"):
        export_onnx(checkpoint, target, force=True)
    (target / "onnx/model.onnx").unlink()
    export_onnx(checkpoint, target, force=True)
    assert (target / "onnx/model.onnx").stat().st_size > 100
    with pytest.raises(UsageError, match="which is in use"):
        export_onnx(checkpoint, checkpoint.path, force=True)


@pytest.mark.usefixtures("no_trace")
def test_a_directory_with_a_graph_alone_cannot_be_exported(
    exported: Callable[[str], Exported], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    _, graph, _ = exported("none")
    with pytest.raises(UsageError, match="holds an ONNX graph and no weights"):
        export_onnx(graph, tmp_path / "graph")


@pytest.mark.parametrize("longest", [1, 2, 7, 8, 17, 40, 512, 4096])
def test_batches(longest: int) -> None:
    traced = (2, min(8, longest))
    actual = batches(longest, traced)
    shapes = [(len(lengths), max(lengths)) for lengths in actual]
    assert len(set(shapes)) == len(shapes) >= 3
    assert traced not in shapes
    assert max(max(lengths) for lengths in actual) == longest
    assert min(min(lengths) for lengths in actual) >= 1
    if longest > 2:
        assert sum(len(set(lengths)) > 1 for lengths in actual) >= 2, "rows of several lengths"


def test_a_difference_ignores_padding_and_nothing_else() -> None:
    random = np.random.default_rng(0)
    expected = random.standard_normal((2, 3, 4))
    axes, lengths = ("batch", "tokens", 4), {"tokens": [2, 1]}
    actual = expected.copy()
    actual[0, 2], actual[1, 1:] = 9.0, np.nan
    assert difference("x", expected, actual, lengths, axes).max_abs == 0
    actual[1, 0, 2] += 0.5
    result = difference("x", expected, actual, lengths, axes)
    real = np.concatenate([expected[0, :2], expected[1, :1]])
    seen = np.concatenate([actual[0, :2], actual[1, :1]])
    norms = np.linalg.norm(real) * np.linalg.norm(seen)
    assert result.max_abs == pytest.approx(0.5)
    assert result.max_rel == pytest.approx(0.5 / np.abs(real).max())
    assert result.cosine == pytest.approx(np.vdot(real, seen) / norms)
    assert result.argmax is None


def test_an_output_without_tokens_is_compared_whole() -> None:
    expected, actual = np.ones((2, 4)), np.ones((2, 4))
    actual[1, 3] = 2
    assert (
        difference("pooler_output", expected, actual, {"tokens": [1, 1]}, ("batch", 4)).max_abs == 1
    )


def test_argmax_agreement() -> None:
    classes = np.array([[[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]])
    other = np.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    assert (
        difference("logits", classes, other, {"tokens": [2]}, ("batch", "tokens", 2)).argmax == 0.5
    )
    spans, shifted = np.array([[1.0, 2.0, 9.0]]), np.array([[1.0, 2.0, 0.0]])
    axes = ("batch", "tokens")
    assert difference("start_logits", spans, shifted, {"tokens": [2]}, axes).argmax == 1.0
    swapped = np.array([[2.0, 1.0, 9.0]])
    assert difference("start_logits", spans, swapped, {"tokens": [2]}, axes).argmax == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 1])
def test_what_is_not_a_number_fails(bad: float, row: int) -> None:
    expected, actual = np.ones((2, 2, 2)), np.ones((2, 2, 2))
    actual[row, 0, 0] = bad
    for first, second in ((expected, actual), (actual, expected), (actual, actual)):
        with np.errstate(invalid="ignore"):
            result = difference("x", first, second, {"tokens": [2, 2]}, ("batch", "tokens", 2))
        check = ShapeCheck(batch=2, tokens=2, padding=0, outputs={"x": result})
        with pytest.raises(VerificationError, match="x of the model or its graph is NaN"):
            require_equal([check], 1e9)
