"""GPT-NeoX: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec.structs import replace

from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.testing.conformance import FamilyTests
from zoo.weights import is_frequencies
from zoo_neox import Neox
from zoo_neox.config import SIZES, NeoxConfig

NEOX = Neox()
SMALL = NeoxConfig(**SMALL_SIZES, pad_token_id=3)


class TestNeox(ReferenceTests, FamilyTests):
    family = NEOX
    golden = Path(__file__).parents[1] / "golden" / "neox"
    base = replace(SIZES["pythia-160m"], vocab_size=1000, max_positions=512, pad_token_id=3)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"parallel": False},
        {"attention_bias": False, "rotary_fraction": 1.0},
        {"rotary_fraction": 0.5, "rope_theta": 90.0},
        {"tie_embeddings": True, "activation": "gelu_new"},
        {"layer_norm_eps": 0.1, "pad_token_id": None},
        {"labels": ("one",), "problem": "regression"},
    )
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("rope_scaling", (("type", "linear"), ("factor", 2.0))): "rope_scaling",
        ("hidden_act", "prelu"): "hidden_act",
    }
    # Of the published files of Pythia 70m and 410m.
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("pythia-70m", "causal-lm"): 70_426_624,
        ("pythia-410m", "causal-lm"): 405_334_016,
    }
    variants = ({"parallel": False}, {"attention_bias": False})
    default = NeoxConfig()
    carried: ClassVar[dict[str, Any]] = {"bos_token_id": 0, "eos_token_id": 0}
    half = "causal-lm"


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_frequencies_of_published_files_are_left_out(dtype: type[np.floating[Any]]) -> None:
    """As the released code computes them, in half precision too; others are not."""
    frequencies = (1 / 10_000 ** (np.arange(0, 16, 2) / 16)).astype(dtype)
    assert is_frequencies(frequencies)
    changed = frequencies.copy()
    changed[3] *= dtype(1.5)
    assert not is_frequencies(changed)
    assert not is_frequencies(np.array([np.nan]))
    assert not is_frequencies(frequencies[::-1])
