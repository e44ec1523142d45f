"""RoBERTa: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import transformers
from msgspec.structs import replace

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.conformance.hf_reference import reference_model
from zoo.io.tensors.formats import TensorInfo
from zoo.testing.conformance import FamilyTests
from zoo.weights import match_tensors
from zoo_roberta import Roberta
from zoo_roberta.config import SIZES, RobertaConfig

ROBERTA = Roberta()
SMALL = RobertaConfig(**{**SMALL_SIZES, "max_positions": 42})


class TestRoberta(ReferenceTests, FamilyTests):
    family = ROBERTA
    golden = Path(__file__).parents[1] / "golden" / "roberta"
    base = replace(SIZES["base"], vocab_size=1000)
    others = ("tiny", "distil", "large", "xlm-base", "xlm-large")
    small = SMALL
    settings = (
        {"tie_embeddings": False},
        {"type_vocab_size": 1},
        {"pad_token_id": 5},
        {"pad_token_id": 0},
        {"activation": "relu"},
        {"layer_norm_eps": 0.1},
        {"model_type": "xlm-roberta"},
        {"model_type": "camembert"},
        {"labels": ("one",), "problem": "regression"},
    )
    default = RobertaConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("position_embedding_type", "relative_key"): "position_embedding_type",
        ("is_decoder", True): "is_decoder",
        ("add_cross_attention", True): "add_cross_attention",
        ("hidden_act", "prelu"): "hidden_act",
        ("pad_token_id", None): "pad_token_id",
        ("max_position_embeddings", 2): "max_positions 2 leaves no position",
    }
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("base", "none"): 124_645_632,
        ("base", "masked-lm"): 124_697_433,
        ("large", "none"): 355_359_744,
        ("large", "masked-lm"): 355_412_057,
        ("distil", "none"): 82_118_400,
        ("distil", "masked-lm"): 82_170_201,
    }
    variants = ({"model_type": "xlm-roberta"}, {"model_type": "camembert"})
    carried: ClassVar[dict[str, Any]] = {"bos_token_id": 0}


# Parity with the reference library


def test_the_whole_vocabulary_equals_the_reference() -> None:
    shape = {"hidden_size": 24, "num_heads": 2, "intermediate_size": 32}
    config = replace(SIZES["base"], num_layers=1, **shape)
    parity.assert_equal(ROBERTA, config, "masked-lm")


def test_positions_do_not_count_padding() -> None:
    model = parity.random_model(ROBERTA, SMALL, "none")
    reference = reference_model(ROBERTA, SMALL, "none", model.state_dict())
    ids = torch.tensor([[1, 1, 7, 8, 1, 9], [4, 5, 6, 1, 1, 1]])
    mask = (ids != 1).long()
    with torch.no_grad():
        ours = model(ids, mask)["last_hidden_state"]
        theirs = reference(ids, mask).last_hidden_state
    assert (ours - theirs).abs().max() <= 1e-9


# Configuration


@pytest.mark.parametrize("kind", ["Roberta", "XLMRoberta", "Camembert"])
def test_keys_of_xlm_roberta_and_camembert_are_known(kind: str) -> None:
    hub = getattr(transformers, f"{kind}Config")()
    translated = ROBERTA.from_hub(hub.to_dict())
    assert translated.unknown == () and isinstance(translated.config, RobertaConfig)
    assert translated.config.model_type == hub.model_type
    assert translated.config == ROBERTA.from_hub({"model_type": hub.model_type}).config
    assert translated.config == replace(
        RobertaConfig(), model_type=hub.model_type, vocab_size=hub.vocab_size
    )


# Published weights


def test_published_file_is_matched() -> None:
    weights = ROBERTA.weights(SMALL, "masked-lm")
    file = parity.published(ROBERTA, SMALL, "masked-lm")
    file["lm_head.decoder.weight"] = file["roberta.embeddings.word_embeddings.weight"]
    file["lm_head.decoder.bias"] = file["lm_head.bias"]
    file["roberta.embeddings.position_ids"] = TensorInfo("I64", (1, 42))
    file["roberta.pooler.dense.weight"] = TensorInfo("F32", (48, 48))
    file["roberta.pooler.dense.bias"] = TensorInfo("F32", (48,))
    mapping = match_tensors(weights, file)
    mapping.raise_if_incomplete("test")
    assert len(mapping.ties) == 2 and len(mapping.drops) == 3


# Behaviour


def test_longest_input() -> None:
    assert ROBERTA.onnx(SIZES["base"], "none").limits == {"tokens": 512}
    assert list(ROBERTA.onnx(SIZES["base"], "none").inputs) == ["input_ids", "attention_mask"]
    assert "token_type_ids" in ROBERTA.onnx(SMALL, "none").inputs
