"""Traces that tests share are of equal models: tensors, settings and code."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.exporter import fingerprint
from tests.inference.making import make_checkpoint
from zoo.inference.load_model import load_model
from zoo.nn.transformer import FeedForward


@pytest.fixture
def model(tmp_path: Path) -> Any:
    return load_model(make_checkpoint(tmp_path / "model", num_layers=1))


def test_equal_models_have_one_trace(model: Any, tmp_path: Path) -> None:
    again = load_model(make_checkpoint(tmp_path / "again", num_layers=1))
    assert fingerprint(model, 18) == fingerprint(again, 18) is not None
    assert fingerprint(model, 18) != fingerprint(model, 19)


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
