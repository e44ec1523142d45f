"""ELMo's exported graph, at lengths other than those of the trace and on texts."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import zoo
from tests.exporting.making import export_onnx
from tests.families import elmo_numpy
from tests.families.elmo_files import published, published_lowest_layer
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.cli import main
from zoo.conformance.golden import Golden
from zoo.conversion.convert import convert
from zoo.exporting.graph.report import OnnxReport
from zoo.hub.source import CheckpointDir
from zoo.inference import load_session
from zoo.inference.bench import measure
from zoo_elmo.characters import sentence_ids

LOWEST_LAYER = "lowest layer"
BATCHES = [[1], [9, 4, 1], [30, 2], [3, 3, 3, 3]]
Exported = Callable[[str], tuple[Golden, Path, OnnxReport]]


def converted(folder: Path, case: str) -> tuple[Checkpoint, Golden]:
    if case == LOWEST_LAYER:
        theirs, golden = published_lowest_layer(folder / "theirs")
    else:
        theirs, golden = published(folder / "theirs", case)
    convert(CheckpointDir(theirs, str(theirs)), folder / "model")
    return load_checkpoint(folder / "model"), golden


def width(golden: Golden) -> int:
    return int(golden.hub_config["char_cnn"]["max_characters_per_token"])


def numpy_outputs(golden: Golden, ids: Any) -> dict[str, Any]:
    weights = {name: array.astype(np.float64) for name, array in golden.weights.items()}
    return elmo_numpy.outputs(golden.hub_config, weights, ids)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Return a cached function from a case to its golden file, its export and the report."""

    @cache
    def export(case: str) -> tuple[Golden, Path, OnnxReport]:
        folder = tmp_path_factory.mktemp(case)
        checkpoint, golden = converted(folder, case)
        return golden, folder / "graph", export_onnx(checkpoint, folder / "graph")

    return export


@pytest.mark.long
@pytest.mark.parametrize("case", [LOWEST_LAYER, "pretraining", "none-unclipped", "none-plain"])
def test_a_graph_equals_the_numpy_model(exported: Exported, case: str) -> None:
    golden, graph, report = exported(case)
    assert report.validated and report.min_onnxruntime == "1.15"
    assert {256, 64, 17, 1} == {check.tokens for check in report.checks}
    session = load_session(load_checkpoint(graph))
    random = np.random.default_rng(0)
    for lengths in BATCHES:
        mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
        characters = random.integers(1, 262, (*mask.shape, width(golden)))
        ids = characters * mask[..., None]
        outputs = session.run({"character_ids": ids})  # a word of zeros is padding
        for inputs in (ids, characters):
            again = session.run({"character_ids": inputs, "attention_mask": mask.astype(np.int64)})
            assert [
                name
                for name in outputs
                if not np.array_equal(again[name][mask], outputs[name][mask])
            ] == []
        for row, length in enumerate(lengths):
            expected = numpy_outputs(golden, ids[row, :length].tolist())
            assert list(expected) == list(outputs)
            for name, values in expected.items():
                difference = np.abs(outputs[name][row, :length] - values).max()
                assert difference <= 1e-5 * np.abs(values).max(), (name, lengths)


@pytest.mark.long
def test_graph_has_a_scan_per_lstm_and_no_machine_paths(
    exported: Exported,
) -> None:
    golden, graph, _ = exported("none-plain")
    path = graph / "onnx/model.onnx"
    model = onnx.load(path)
    loops = [node for node in model.graph.node if node.op_type == "Scan"]
    assert len(loops) == 2 * golden.hub_config["lstm"]["n_layers"]
    assert len(model.graph.node) < 100 and not model.functions
    bodies = [
        attribute.g for loop in loops for attribute in loop.attribute if attribute.name == "body"
    ]
    for node in (n for body in bodies for n in (*body.node, *body.input, *body.output)):
        assert not node.metadata_props and not node.doc_string
    content = path.read_bytes()
    assert [trace for trace in (b"site-packages", b"forward(", b".py") if trace in content] == []


@pytest.mark.long
def test_float16(tmp_path: Path) -> None:
    checkpoint, _ = converted(tmp_path, "none-mixed")
    report = export_onnx(checkpoint, tmp_path / "graph", dtype="float16")
    assert report.validated and 1e-5 < report.max_rel < 5e-3


@pytest.mark.long
def test_texts_through_the_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, golden = converted(tmp_path, "none-mixed")
    model = zoo.load(checkpoint.path, backend="onnx")  # exported on first use, and cached
    texts = ["A cat sat .", "no", ""]
    expected = [
        numpy_outputs(golden, sentence_ids(text.split(), width(golden)))["last_hidden_state"]
        for text in texts
    ]
    for order in (slice(None), slice(None, None, -1)):  # texts do not share state
        actual = model.features(texts[order])
        for result, values in zip(actual, expected[order], strict=True):
            assert len(result["tokens"]) == len(values)
            assert np.abs(result["layers"]["2"] - values).max() <= 1e-5
    arguments = ["run", "embed", str(checkpoint.path), "--backend", "onnx", "--json", *texts[:2]]
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert not end.value.code
    results = json.loads(capsys.readouterr().out)["results"]
    for result, values in zip(results, expected, strict=False):
        assert np.abs(np.array(result["embedding"]) - values.mean(0)).max() <= 1e-5


def test_benchmark_inputs_are_character_ids(tmp_path: Path) -> None:
    checkpoint, _ = converted(tmp_path, "none-mixed")
    session = load_session(checkpoint, "cpu")
    first, again = measure(checkpoint, [session, session], batch_size=2, seq_len=9, iterations=1)
    assert first.tokens == 18 and first.difference == again.difference == 0
