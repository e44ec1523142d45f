"""Traces that tests share are of equal models: tensors, settings and code."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm
from tests.exporter import fingerprint, trace_once
from tests.inference.making import make_checkpoint
from zoo.exporting.graph.onnx_file import EXTERNAL_OVER, write_graph
from zoo.exporting.graph.opsets import DEFAULT_OPSET
from zoo.exporting.graph.trace import trace
from zoo.families.random_inputs import random_inputs
from zoo.inference.load_model import load_model
from zoo.nn.transformer import FeedForward


@pytest.fixture
def model(tmp_path: Path) -> Any:
    return load_model(make_checkpoint(tmp_path / "model", num_layers=1))


def test_equal_models_have_one_trace(model: Any, tmp_path: Path) -> None:
    again = load_model(make_checkpoint(tmp_path / "again", num_layers=1))
    assert fingerprint(model, 18) == fingerprint(again, 18) is not None
    assert fingerprint(model, 18) != fingerprint(model, 19)


def test_a_model_is_the_same_in_another_process(model: Any, tmp_path: Path) -> None:
    """Sets have another order there."""
    code = (
        "from tests.exporter import fingerprint\n"
        "from pathlib import Path\n"
        "from zoo.checkpoint import load_checkpoint\n"
        "from zoo.inference.load_model import load_model\n"
        "print(fingerprint(load_model(load_checkpoint(Path('model'))), 18))"
    )
    done = warm.python(code, tmp_path)
    assert done.stdout == f"{fingerprint(model, 18)}\n", done.stderr


def test_a_shared_trace_is_written_as_that_of_the_first_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1, intermediate_size=20)
    model = load_model(checkpoint)
    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    example = random_inputs(spec, checkpoint.config, (8, 5))
    programs = []

    def record(*arguments: Any, **options: Any) -> Any:
        programs.append(trace(*arguments, **options))
        return programs[-1]

    monkeypatch.setattr("zoo.exporting.graph.trace.trace", record)
    shared = [trace_once(model, example, spec, DEFAULT_OPSET) for _ in range(2)]
    (first,) = programs
    files = []
    for number, program in enumerate([first, *shared]):
        path = tmp_path / f"{number}.onnx"
        write_graph(program.model, path, DEFAULT_OPSET, EXTERNAL_OVER)
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]


def test_another_number_or_setting_is_another_model(model: Any) -> None:
    digests = {fingerprint(model, 18)}
    with torch.no_grad():
        model.get_parameter("layers.0.ffn.up.weight")[0, 0] += 1
    digests.add(fingerprint(model, 18))
    model.layers[0].ffn_norm.eps = 0.5
    digests.add(fingerprint(model, 18))
    assert len(digests) == 3 and None not in digests


def test_a_model_with_a_function_of_a_test_is_traced_each_time(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(self: FeedForward, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    monkeypatch.setattr(FeedForward, "forward", forward)
    assert fingerprint(model, 18) is None
    monkeypatch.undo()
    monkeypatch.setattr(model.layers[0].ffn, "forward", lambda hidden: hidden)
    assert fingerprint(model, 18) is None
