"""Exported graphs: inputs, outputs, and equality with torch."""

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest

from tests.exporting.conftest import Exported, dtypes
from tests.exporting.making import export_onnx
from tests.inference.making import draw_batch, make_checkpoint
from zoo.checkpoint import load_checkpoint
from zoo.conformance.verify import verify
from zoo.errors import UsageError
from zoo.inference import load_session
from zoo.io.digests.files import hash_file
from zoo.plugins import get_family

HEADS = [
    pytest.param(head, marks=[] if head in ("none", "masked-lm") else pytest.mark.long)
    for head in get_family("bert").heads()
]
BATCHES = [[1], [13, 7, 1, 4], [40, 21], [2, 2, 2]]


@pytest.mark.by_default("none")
@pytest.mark.parametrize("head", HEADS)
def test_a_graph_equals_torch(exported: Callable[[str], Exported], head: str) -> None:
    checkpoint, graph, _ = exported(head)
    torch_session = load_session(checkpoint, "cpu")
    onnx_session = load_session(graph)
    assert onnx_session.backend == "onnx" and onnx_session.dtype == "float32"
    assert onnx_session.inputs == torch_session.inputs
    assert onnx_session.outputs == torch_session.outputs
    for seed, lengths in enumerate(BATCHES):
        batch = draw_batch(lengths, seed=seed)
        real = batch["attention_mask"] == 1
        if head == "multiple-choice":  # (batch, choices, tokens)
            batch = {name: np.stack([a, a[:, ::-1], a], axis=1) for name, a in batch.items()}
        expected, outputs = torch_session.run(batch), onnx_session.run(batch)
        for name, a in expected.items():
            b = outputs[name]
            assert a.shape == b.shape and b.dtype == np.float32
            if a.shape[:2] == real.shape:
                a, b = a[real], b[real]
            assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max(), (name, lengths)


@pytest.mark.parametrize("head", HEADS)
def test_names_and_axes_are_those_the_ecosystem_expects(
    exported: Callable[[str], Exported], head: str
) -> None:
    checkpoint, graph, _ = exported(head)
    model = onnx.load(graph.path / "onnx/model.onnx")
    onnx.checker.check_model(model, full_check=True)
    spec = checkpoint.family.onnx(checkpoint.config, head)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    assert [value.name for value in model.graph.input] == names
    assert [value.name for value in model.graph.output] == list(checkpoint.head.outputs)
    for value in (*model.graph.input, *model.graph.output):
        axes = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        assert tuple(axes) == {**spec.inputs, **spec.outputs}[value.name]
        kind = onnx.TensorProto.INT64 if value.name in names else onnx.TensorProto.FLOAT
        assert value.type.tensor_type.elem_type == kind


# every head is another export; these two are those of other tests
@pytest.mark.parametrize(
    "head",
    ["none", "masked-lm", pytest.param("question-answering", marks=pytest.mark.long)],
)
def test_the_manifest_has_the_result_of_the_gate(
    exported: Callable[[str], Exported], head: str
) -> None:
    checkpoint, graph, report = exported(head)
    export = graph.manifest.export
    assert export == report.to_dict() and export is not None
    assert (export["validated"], export["opset"], export["ir"]) == (True, 18, 8)
    assert export["dtype"] == "float32" and export["min_onnxruntime"] == "1.15"
    assert export["tolerance"] == 1e-4 and 0 < export["max_rel"] <= 1e-5
    assert {"torch", "onnx", "onnxscript", "onnxruntime"} == export["versions"].keys()
    assert (
        export["weights"]["model.safetensors"]["blake3"]
        == hash_file(checkpoint.path / "model.safetensors").blake3
    )
    shapes = [(check["batch"], check["tokens"]) for check in export["checks"]]
    assert len(set(shapes)) >= 3 and (1, 1) in shapes and 40 in [tokens for _, tokens in shapes]
    assert tuple(export["traced"]) not in shapes
    assert sum(check["padding"] > 0 for check in export["checks"]) >= 3
    for check in export["checks"]:
        assert check["outputs"].keys() == set(graph.head.outputs)
        for name, actual in check["outputs"].items():
            assert actual["cosine"] == pytest.approx(1, abs=1e-6)
            assert actual["max_abs"] >= 0 and math.isfinite(actual["max_abs"])
            assert actual.get("argmax") == (1.0 if "logits" in name else None)
    assert report.argmax_agreement == (None if head == "none" else 1.0)
    assert "of the largest magnitude" in "\n".join(report.lines())
    assert msgspec.json.decode(msgspec.json.encode(report), type=type(report)) == report


def test_the_directory_is_complete_and_verifies(exported: Callable[[str], Exported]) -> None:
    checkpoint, graph, _ = exported("none")
    assert graph.manifest.files.keys() == {"onnx/model.onnx", "config.json", "README.md"}
    names = {path.name for path in graph.path.iterdir()}
    assert names == {"onnx", "config.json", "zoo.json", "README.md"}
    assert graph.model == checkpoint.model
    assert graph.manifest.source == checkpoint.manifest.source
    assert graph.manifest.licence == "apache-2.0"
    assert graph.manifest.dtypes["F32"] > 15
    assert [check.name for check in verify(graph.path)][:1] == ["digests"]
    assert {check.outcome for check in verify(graph.path)} == {"ok"}


def test_the_file_says_nothing_of_the_machine(exported: Callable[[str], Exported]) -> None:
    _, graph, _ = exported("masked-lm")
    path = graph.path / "onnx/model.onnx"
    model = onnx.load(path)
    noted = [model, model.graph, *model.graph.node, *model.graph.initializer]
    noted += [*model.graph.input, *model.graph.output, *model.graph.value_info]
    assert [item for item in noted if item.metadata_props or item.doc_string] == []
    assert not model.functions
    content = path.read_bytes()
    for trace in (b"site-packages", b"forward(", b".py", str(Path(__file__).parents[3]).encode()):
        assert trace not in content


def test_tied_embeddings_are_stored_once(exported: Callable[[str], Exported]) -> None:
    checkpoint, graph, _ = exported("masked-lm")
    stored = (checkpoint.path / "model.safetensors").stat().st_size
    model = onnx.load(graph.path / "onnx/model.onnx")
    sizes = [len(tensor.raw_data) for tensor in model.graph.initializer]
    assert sum(sizes) < stored + 4096, "300 x 64 embeddings stored twice would be 76,800 more"


@pytest.mark.parametrize("opset", [17, 23, 0])
def test_an_opset_that_was_not_tried_is_refused(
    exported: Callable[[str], Exported], tmp_path: Path, opset: int
) -> None:
    checkpoint, _, _ = exported("none")
    with pytest.raises(UsageError, match=f"opset {opset} is not supported; give 18 to 22"):
        export_onnx(checkpoint, tmp_path / "graph", opset=opset)
    assert not list(tmp_path.glob("*graph*"))


@pytest.mark.long
@pytest.mark.parametrize("opset, ir, runtime", [(20, 9, "1.17"), (22, 10, "1.21")])
def test_other_opsets_and_nothing_on_the_screen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], opset: int, ir: int, runtime: str
) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1)
    report = export_onnx(checkpoint, tmp_path / "graph", opset=opset)
    assert capfd.readouterr() == ("", "")
    model = onnx.load(tmp_path / "graph" / "onnx/model.onnx")
    assert [(o.domain, o.version) for o in model.opset_import] == [("", opset)]
    assert (report.opset, report.ir, model.ir_version) == (opset, ir, ir)
    assert report.min_onnxruntime == runtime


@pytest.mark.long
def test_float16(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1)
    report = export_onnx(checkpoint, tmp_path / "graph", dtype="float16")
    graph = load_checkpoint(tmp_path / "graph")
    assert report.dtype == "float16" and report.tolerance == 2e-2
    assert report.min_onnxruntime == "1.17"
    assert 1e-5 < report.max_rel < 2e-2
    assert graph.manifest.dtypes["F16"] > 10 and "F32" not in graph.manifest.dtypes
    types = dtypes(tmp_path / "graph/onnx/model_fp16.onnx")
    assert {types["last_hidden_state"], types["pooler_output"]} == {onnx.TensorProto.FLOAT}
    session = load_session(graph)
    assert session.dtype == "float16"
    assert session.run(draw_batch([5, 2]))["pooler_output"].dtype == np.float32
    with pytest.raises(UsageError, match=r"in bfloat16: .* only has it on CUDA"):
        export_onnx(checkpoint, tmp_path / "other", dtype="bfloat16")
