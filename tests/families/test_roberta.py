"""RoBERTa: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import transformers
from msgspec.structs import replace

from tests.families import parity
from tests.families.further_version import FurtherVersionTests
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.conformance.hf_reference import reference_model
from zoo.families.runtimes import RuntimeModel
from zoo.io.tensors.formats import TensorInfo
from zoo.testing.conformance import FamilyTests
from zoo.weights import match_tensors
from zoo_roberta import Roberta
from zoo_roberta.config import SIZES, RobertaConfig

ROBERTA = Roberta()
SMALL = RobertaConfig(**{**SMALL_SIZES, "max_positions": 42})
SMALL_XL = replace(SMALL, model_type="xlm-roberta-xl")


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


class TestRobertaXL(ReferenceTests, FurtherVersionTests):
    """The version with norms before the parts of a block."""

    family = ROBERTA
    base = replace(SIZES["base"], model_type="xlm-roberta-xl", vocab_size=1000)
    others = ()
    small = SMALL_XL
    test_label_leaks = None  # objectives and masks are of every version
    # The reference has no dropout after the feed-forward network, unlike fairseq.
    test_dropout_rates = None
    settings = (
        {},
        {"tie_embeddings": False},
        {"type_vocab_size": 1},
        {"pad_token_id": 5},
        {"activation": "relu"},
        {"layer_norm_eps": 0.1},
        {"labels": ("one",), "problem": "regression"},
    )
    default = SIZES["xlm-xl"]
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("position_embedding_type", "relative_key"): "position_embedding_type",
        ("is_decoder", True): "is_decoder",
        ("add_cross_attention", True): "add_cross_attention",
        ("hidden_act", "prelu"): "hidden_act",
        ("pad_token_id", None): "pad_token_id",
        ("max_position_embeddings", 2): "max_positions 2 leaves no position",
    }
    # by hand: embeddings, blocks, a last norm; then the pooler, or the head for masked tokens
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("xlm-xl", "none"): 3_475_929_600 + 6_556_160,
        ("xlm-xl", "masked-lm"): 3_482_741_760,
        ("xlm-xxl", "masked-lm"): 10_712_994_816,
    }
    carried: ClassVar[dict[str, Any]] = {"bos_token_id": 0}

    @property
    def config(self) -> RobertaConfig:
        return replace(SIZES["tiny"], model_type="xlm-roberta-xl")


# Parity with the reference library


def test_the_whole_vocabulary_equals_the_reference() -> None:
    shape = {"hidden_size": 24, "num_heads": 2, "intermediate_size": 32}
    config = replace(SIZES["base"], num_layers=1, **shape)
    parity.assert_equal(ROBERTA, config, "masked-lm")


def test_positions_do_not_count_padding() -> None:
    parity.assert_positions_skip_padding(ROBERTA, SMALL)


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


def test_published_file_of_the_xl_version_is_matched() -> None:
    """With names that no other version has, and without a norm of the embeddings."""
    file = parity.published(ROBERTA, SMALL_XL, "masked-lm")
    assert "roberta.encoder.layer.0.attention.self_attn_layer_norm.weight" in file
    assert "roberta.encoder.LayerNorm.bias" in file
    assert "roberta.embeddings.LayerNorm.weight" not in file
    file["roberta.embeddings.position_ids"] = TensorInfo("I64", (1, 42))
    file["lm_head.decoder.weight"] = file["roberta.embeddings.word_embeddings.weight"]
    file["lm_head.decoder.bias"] = file["lm_head.bias"]
    mapping = match_tensors(ROBERTA.weights(SMALL_XL, "masked-lm"), file)
    mapping.raise_if_incomplete("test")
    assert len(mapping.ties) == 2 and len(mapping.drops) == 1


# Behaviour


def test_gradients_of_the_xl_version_equal_the_reference() -> None:
    model = parity.random_model(ROBERTA, SMALL_XL, "none")
    reference = reference_model(ROBERTA, SMALL_XL, "none", model.state_dict())
    ids = torch.tensor([[4, 7, 8, 9, 2], [4, 5, 2, 1, 1]])
    mask = (ids != 1).long()
    model(ids, mask)["last_hidden_state"].pow(3).sum().backward()
    reference(ids, mask).last_hidden_state.pow(3).sum().backward()
    pairs = {
        "layers.0.attention_norm.weight": ("encoder.layer.0.attention.self_attn_layer_norm.weight"),
        "layers.1.ffn.up.weight": "encoder.layer.1.intermediate.dense.weight",
        "final_norm.bias": "encoder.LayerNorm.bias",
        "embeddings.positions.weight": "embeddings.position_embeddings.weight",
    }
    for ours, theirs in pairs.items():
        gradient = model.get_parameter(ours).grad
        expected = reference.get_parameter(theirs).grad
        assert gradient is not None and expected is not None
        rows = slice(2, None) if "positions" in ours else slice(None)  # the reference skips padding
        difference = (gradient - expected)[rows].abs().max()
        assert difference <= 1e-9 * expected.abs().max(), ours


@pytest.mark.parametrize("target", ["ctranslate2", "gguf"])
@pytest.mark.parametrize("head", ["none", "sequence-classification"])
def test_runtimes_without_norms_before_attention_refuse_the_xl_version(
    target: str, head: str
) -> None:
    assert isinstance(ROBERTA.runtime_model(target, SMALL, "none"), RuntimeModel)
    assert isinstance(ROBERTA.runtime_model(target, SMALL_XL, head), str)
    reason = ROBERTA.runtime_model(target, SMALL_XL, "none")
    assert reason == (
        "its encoder has norms after attention and feed-forward networks, not before them"
    )


def test_longest_input() -> None:
    assert ROBERTA.onnx(SIZES["base"], "none").limits == {"tokens": 512}
    assert list(ROBERTA.onnx(SIZES["base"], "none").inputs) == ["input_ids", "attention_mask"]
    assert "token_type_ids" in ROBERTA.onnx(SMALL, "none").inputs
