"""EuroBERT: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.errors import VerificationError
from zoo.testing.conformance import FamilyTests
from zoo_eurobert import EuroBert
from zoo_eurobert.config import SIZES, EuroBertConfig

EUROBERT = EuroBert()
SMALL = EuroBertConfig(**SMALL_SIZES, num_kv_heads=2, pad_token_id=3)


class TestEuroBert(ReferenceTests, FamilyTests):
    family = EUROBERT
    golden = Path(__file__).parents[1] / "golden" / "eurobert"
    base = replace(SIZES["210m"], vocab_size=1000, max_positions=512, pad_token_id=3)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"tie_embeddings": True},
        {"num_kv_heads": None, "rope_theta": 90.0},
        {"num_kv_heads": 1, "layer_norm_eps": 0.1},
        {"classifier_pooling": "mean", "pad_token_id": None},
        {"classifier_pooling": "bos", "activation": "gelu"},
        {"labels": ("one",), "problem": "regression"},
    )
    # The reference replaces a missing number of shared heads by the number of heads.
    default = EuroBertConfig(num_kv_heads=12)
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("attention_bias", True): "attention_bias",
        ("mlp_bias", True): "mlp_bias",
        ("head_dim", 128): "head_dim",
        ("is_decoder", True): "is_decoder",
        ("rope_scaling", (("factor", 2.0),)): "rope_scaling",
        ("classifier_pooling", "max"): "classifier_pooling",
        ("hidden_act", "prelu"): "hidden_act",
    }
    # Of the published files of EuroBERT-610m and EuroBERT-2.1B.
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("610m", "masked-lm"): 755_625_600,
        ("2.1b", "masked-lm"): 2_403_092_736,
    }
    variants = ({"tie_embeddings": True}, {"num_kv_heads": None})
    carried: ClassVar[dict[str, Any]] = {"bos_token_id": 0, "mask_token_id": 7}


# Keys of the published config.json of EuroBERT-210m, which names its code, and of that code.
PUBLISHED: dict[str, Any] = {
    "architectures": ["EuroBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {"AutoModelForMaskedLM": "modeling_eurobert.EuroBertForMaskedLM"},
    "bos_token": "<|begin_of_text|>",
    "bos_token_id": 128000,
    "eos_token": "<|end_of_text|>",
    "eos_token_id": 128001,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_dropout": 0.0,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "mask_token": "<|mask|>",
    "mask_token_id": 128002,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "eurobert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "num_key_value_heads": 12,
    "pad_token": "<|end_of_text|>",
    "pad_token_id": 128001,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 250000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": False,
    "vocab_size": 128256,
}


def test_a_published_configuration_is_read() -> None:
    translated = EUROBERT.from_hub(PUBLISHED)
    assert translated.config == SIZES["210m"]
    assert translated.unknown == ()


def test_other_rotations_are_refused() -> None:
    rotation = {"rope_type": "llama3", "rope_theta": 250000.0, "factor": 8.0}
    with pytest.raises(VerificationError, match=r"rope_parameters\.rope_type"):
        EUROBERT.from_hub({**PUBLISHED, "rope_parameters": rotation})
