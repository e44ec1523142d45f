"""ELECTRA: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import transformers
from msgspec.structs import replace

from tests.families.parity import published
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.io.tensors.formats import TensorInfo
from zoo.testing.conformance import FamilyTests
from zoo.weights import match_tensors
from zoo_electra import Electra
from zoo_electra.config import SIZES, ElectraConfig

ELECTRA = Electra()
SMALL = ElectraConfig(**SMALL_SIZES, embedding_size=24, type_vocab_size=3)


class TestElectra(ReferenceTests, FamilyTests):
    family = ELECTRA
    golden = Path(__file__).parents[1] / "golden" / "electra"
    base = SIZES["base"]
    others = ("small", "large", "base-generator", "large-generator")
    small = SMALL
    settings = (
        {"tie_embeddings": False},
        {"embedding_size": 48},
        {"embedding_size": 96},
        {"type_vocab_size": 1},
        {"pad_token_id": 5},
        {"activation": "relu"},
        {"layer_norm_eps": 0.1},
        {"labels": ("one",), "problem": "regression"},
    )
    default = SIZES["small"]
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("is_decoder", True): "is_decoder",
        ("hidden_act", "prelu"): "hidden_act",
        ("summary_type", "mean"): "summary_type",
        ("summary_use_proj", False): "summary_use_proj",
        ("summary_activation", "tanh"): "summary_activation",
        ("summary_first_dropout", 0.1): "summary_first_dropout",
        ("summary_proj_to_labels", True): "summary_proj_to_labels",
        ("embedding_size", 0): "embedding_size",
    }
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("small", "none"): 13_483_008,
        ("small", "replaced-token-detection"): 13_549_057,
        ("small-generator", "masked-lm"): 13_546_682,
        ("base", "none"): 108_891_648,
        ("base", "replaced-token-detection"): 109_483_009,
        ("base-generator", "none"): 33_511_168,
        ("base-generator", "masked-lm"): 33_740_602,
        ("large", "none"): 334_092_288,
        ("large", "replaced-token-detection"): 335_142_913,
        ("large-generator", "none"): 50_999_552,
        ("large-generator", "masked-lm"): 51_295_290,
    }
    variants = ({"embedding_size": 48},)
    carried: ClassVar[dict[str, Any]] = {"summary_type": "first"}


def test_projection_between_equal_widths_is_ignored_with_a_reason() -> None:
    """google/electra-base-discriminator and -large-discriminator have an unused one."""
    config = replace(SMALL, embedding_size=48)
    head = "replaced-token-detection"
    reference = transformers.ElectraForPreTraining(
        transformers.ElectraConfig(**ELECTRA.to_hub(config))
    )
    assert not hasattr(reference.electra, "embeddings_project")
    file = published(ELECTRA, config, head)
    file["electra.embeddings_project.weight"] = TensorInfo("F32", (48, 48))
    file["electra.embeddings_project.bias"] = TensorInfo("F32", (48,))
    mapping = match_tensors(ELECTRA.weights(config, head), file)
    mapping.raise_if_incomplete("test")
    assert set(mapping.drops) == {
        "electra.embeddings_project.weight",
        "electra.embeddings_project.bias",
    }
