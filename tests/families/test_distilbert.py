"""DistilBERT: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from msgspec.structs import replace

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.errors import VerificationError
from zoo.testing.conformance import FamilyTests
from zoo_distilbert import DistilBert
from zoo_distilbert.config import SIZES, DistilBertConfig

DISTILBERT = DistilBert()
SMALL = DistilBertConfig(**SMALL_SIZES)


class TestDistilBert(ReferenceTests, FamilyTests):
    family = DISTILBERT
    golden = Path(__file__).parents[1] / "golden" / "distilbert"
    base = SIZES["base"]
    others = ("tiny",)
    small = SMALL
    settings = (
        {"tie_embeddings": False},
        {"pad_token_id": 5},
        {"pad_token_id": None},
        {"activation": "relu"},
        {"num_heads": 1},
        {"labels": ("one",), "problem": "regression"},
    )
    default = SIZES["base"]
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("is_decoder", True): "is_decoder",
        ("activation", "prelu"): "activation",
        ("qa_dropout", 1.5): "qa_dropout",
    }
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("base", "none"): 66_362_880,
        ("base", "masked-lm"): 66_985_530,
        # 28,996 instead of 30,522 embeddings of size 768, and as many biases
        ("base-cased", "none"): 66_362_880 - 1526 * 768,
        ("base-cased", "masked-lm"): 66_985_530 - 1526 * 769,
        ("base-multilingual-cased", "none"): 66_362_880 + 89_025 * 768,
    }
    carried: ClassVar[dict[str, Any]] = {"tie_weights_": True}


def test_keys_of_older_releases_are_known() -> None:
    older = {"tie_weights_": True, "sinusoidal_pos_embds": False, "output_past": True}
    translated = DISTILBERT.from_hub({"model_type": "distilbert", **older})
    assert translated.config == SIZES["base"] and translated.unknown == ()


def test_aliases_are_accepted_and_contradictions_refused() -> None:
    assert DISTILBERT.from_hub({"hidden_size": 96}).config == DistilBertConfig(hidden_size=96)
    with pytest.raises(VerificationError, match=r"hidden_size = 96 contradicts dim = 48"):
        DISTILBERT.from_hub({"dim": 48, "hidden_size": 96})


def test_token_types_are_refused() -> None:
    assert list(DISTILBERT.onnx(SMALL, "none").inputs) == ["input_ids", "attention_mask"]
    model = DISTILBERT.model(SMALL, "none")
    ids = torch.ones(1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="has no segment embeddings"):
        model(ids, token_type_ids=ids)


def test_training_drops_what_the_reference_drops() -> None:
    config = replace(SMALL, dropout=0.0, attention_dropout=0.0)
    model = parity.random_model(DISTILBERT, config, "none").train()
    ids = torch.ones(1, 5, dtype=torch.int64)
    assert torch.equal(model(ids)["last_hidden_state"], model(ids)["last_hidden_state"])
    layer = model.get_submodule("layers.0")
    layer.get_submodule("dropout").p = 1.0  # type: ignore[assignment]
    x = torch.randn(1, 5, 48, dtype=torch.float64)
    attended = layer.attention_norm(x + layer.attention(x))  # type: ignore[operator]
    assert torch.equal(layer(x), layer.ffn_norm(attended))  # type: ignore[operator]
