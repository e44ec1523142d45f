"""ModernBERT: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.errors import VerificationError
from zoo.families.random_inputs import random_inputs
from zoo.testing.conformance import FamilyTests
from zoo_modernbert import ModernBert
from zoo_modernbert.config import SIZES, ModernBertConfig

MODERNBERT = ModernBert()
# an odd reach of local attention, and every second layer global
LOCAL: dict[str, Any] = {"local_attention": 10, "global_attn_every_n_layers": 2, "pad_token_id": 3}
SMALL = ModernBertConfig(**SMALL_SIZES, **LOCAL)


class TestModernBert(ReferenceTests, FamilyTests):
    family = MODERNBERT
    golden = Path(__file__).parents[1] / "golden" / "modernbert"
    row_lengths, packed_lengths = (40, 25, 2), (25, 14)  # longer than the window
    base = replace(SIZES["base"], vocab_size=1000, pad_token_id=3)
    others = ("tiny", "ettin-17m", "large")
    small = SMALL
    settings = (
        {"tie_embeddings": False},
        {"classifier_pooling": "mean"},
        {"pad_token_id": None},
        {"activation": "relu"},
        {"classifier_activation": "silu"},
        {"layer_norm_eps": 0.1},
        {"global_attn_every_n_layers": 1},
        {"global_rope_theta": 500.0, "local_rope_theta": 90.0},
        {"labels": ("one",), "problem": "regression"},
    )
    default = ModernBertConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("attention_bias", True): "attention_bias",
        ("mlp_bias", True): "mlp_bias",
        ("norm_bias", True): "norm_bias",
        ("classifier_bias", True): "classifier_bias",
        ("decoder_bias", False): "decoder_bias",
        ("is_decoder", True): "is_decoder",
        ("rope_parameters.full_attention.rope_type", "yarn"): "rope_type",
        ("classifier_pooling", "max"): "classifier_pooling",
    }
    # Warner et al. 2024, table 4; Weller et al. 2025, whose models are named after their number
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("base", "none"): 149_014_272,
        ("base", "masked-lm"): 149_655_232,
        ("large", "none"): 394_781_696,
        ("ettin-17m", "none"): 16_797_440,
        ("ettin-32m", "none"): 31_883_136,
        ("ettin-68m", "none"): 68_144_640,
        ("ettin-1b", "none"): 1_028_050_688,
    }
    variants = ({}, {"tie_embeddings": False}, {"classifier_pooling": "mean"})
    carried: ClassVar[dict[str, Any]] = {"deterministic_flash_attn": True, "cls_token_id": 7}


def test_the_longest_row_equals_the_reference() -> None:
    """8,192 tokens, and a padded row, in local attention of the published width."""
    config = replace(
        SMALL, num_layers=2, hidden_size=8, num_heads=1, max_positions=8192, local_attention=128
    )
    inputs = random_inputs(MODERNBERT.onnx(config, "none"), config, (8192, 3001))
    model = parity.random_model(MODERNBERT, config, "none")
    parity.assert_equal(MODERNBERT, config, "none", model, inputs)


def test_a_published_configuration_is_read() -> None:
    """answerdotai/ModernBERT-base has the names of an earlier release of transformers."""
    hub = {
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "classifier_pooling": "mean",
    }
    assert MODERNBERT.config_map.from_hub(hub, ModernBertConfig).config == SIZES["base"]


def test_other_patterns_of_local_attention_are_refused() -> None:
    with pytest.raises(VerificationError, match="layer_types"):
        MODERNBERT.from_hub({"layer_types": ["full_attention"] * 22})


def test_frequencies_contradict_each_other() -> None:
    later = {"full_attention": {"rope_theta": 7.0, "rope_type": "default"}}
    with pytest.raises(VerificationError, match="contradicts"):
        MODERNBERT.from_hub({"global_rope_theta": 9.0, "rope_parameters": later})
