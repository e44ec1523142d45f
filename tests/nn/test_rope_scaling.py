"""Scaled rotary frequencies, compared with the functions of transformers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from zoo.nn.positions import DynamicScaling, LinearScaling, Rotary, YarnScaling

WIDTH = 16
BASE = 10_000.0
POSITIONS = 64  # Of training.
FACTOR = 4.0
SCALINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": LinearScaling(FACTOR),
    "dynamic": DynamicScaling(FACTOR, BASE, POSITIONS),
    "yarn": YarnScaling(FACTOR, BASE, POSITIONS),
}


def reference(rope_type: str, tokens: int) -> tuple[Tensor, float]:
    """Return the frequencies of transformers for a row, and the factor of cosines and sines."""
    rope: dict[str, Any] = {"rope_type": rope_type, "rope_theta": BASE, "factor": FACTOR}
    positions = POSITIONS
    if rope_type == "yarn":
        rope["original_max_position_embeddings"] = POSITIONS
        positions = round(FACTOR * POSITIONS)
    config = LlamaConfig(
        hidden_size=2 * WIDTH,
        num_attention_heads=2,
        max_position_embeddings=positions,
        rope_parameters=rope,
    )
    compute: Any = ROPE_INIT_FUNCTIONS[rope_type]
    frequencies, magnitude = compute(config, torch.device("cpu"), seq_len=tokens)
    return frequencies, magnitude


@pytest.mark.parametrize("tokens", [1, POSITIONS, POSITIONS + 1, 200])
@pytest.mark.parametrize("rope_type", SCALINGS)
def test_rotations_equal_those_of_transformers(rope_type: str, tokens: int) -> None:
    frequencies, magnitude = reference(rope_type, tokens)
    scaling = SCALINGS[rope_type]
    if isinstance(scaling, YarnScaling):
        assert scaling.magnitude == pytest.approx(magnitude, abs=1e-12)
    else:
        assert magnitude == 1.0
    position_ids = torch.arange(tokens)[None]
    rotation = Rotary(WIDTH, BASE, scaling=scaling, magnitude=magnitude)(position_ids)
    angles = position_ids[0, :, None].float() * frequencies
    expected = angles.cos() * magnitude, angles.sin() * magnitude
    for actual, wanted in zip((rotation.cos, rotation.sin), expected, strict=True):
        difference = actual[0, 0].double() - wanted.double()
        assert float(difference.abs().max()) <= 1e-9


def test_dynamic_scaling_leaves_rows_of_the_length_of_training() -> None:
    plain = Rotary(WIDTH, BASE)
    dynamic = Rotary(WIDTH, BASE, scaling=SCALINGS["dynamic"])
    short = torch.arange(POSITIONS)[None]
    assert torch.equal(plain(short).cos, dynamic(short).cos)
    long = torch.arange(POSITIONS + 1)[None]
    assert not torch.equal(plain(long).cos, dynamic(long).cos)
