"""BERT: the conformance kit, and equality with the reference library at full size."""

import math
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace
from torch import nn

from tests.families.parity import (
    assert_batch_equal,
    assert_equal,
    assert_equal_at_all_lengths,
    published,
    random_model,
)
from tests.families.reference import SMALL_SIZES
from zoo.conformance.comparison import compare_with_reference
from zoo.conformance.hf_reference import reference_model
from zoo.errors import VerificationError
from zoo.families.config import Activation
from zoo.families.random_inputs import random_inputs
from zoo.io.tensors.formats import TensorInfo
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.testing.conformance import FamilyTests
from zoo.weights import match_tensors
from zoo_bert import Bert
from zoo_bert.config import SIZES, BertConfig

BERT = Bert()
HEADS = [head for head in BERT.heads() if BERT.has_reference(BertConfig(), head)]
SMALL = BertConfig(**SMALL_SIZES, type_vocab_size=3)
TINYBERT = BertConfig(num_layers=4, hidden_size=312, num_heads=12, intermediate_size=1200)


class TestBert(FamilyTests):
    family = BERT
    golden = Path(__file__).parents[1] / "golden" / "bert"

    @property
    def config(self) -> BertConfig:
        return replace(SIZES["tiny"], vocab_size=1000)


# Parity with the reference library


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.long
def test_base_equals_the_reference(head: str) -> None:
    assert_equal_at_all_lengths(BERT, SIZES["base"], head)


@pytest.mark.long
def test_base_equals_the_reference_in_float64_at_full_length() -> None:
    model = random_model(BERT, SIZES["base"], "none")
    reference = reference_model(BERT, SIZES["base"], "none", model.state_dict())
    spec = BERT.onnx(SIZES["base"], "none")
    assert_batch_equal(model, reference, spec, SIZES["base"], (512,))


# heads have no width of their own: what they add to the backbone is compared at small sizes
@pytest.mark.long
@pytest.mark.parametrize(
    "head", [pytest.param(head, marks=[pytest.mark.long] * (head != "none")) for head in HEADS]
)
@pytest.mark.parametrize("size", ["tiny", "mini", "small", "medium", "large"])
def test_other_widths_equal_the_reference(size: str, head: str) -> None:
    full = SIZES[size]
    config = replace(full, num_layers=2, vocab_size=200)
    assert_equal(BERT, config, head)


def test_a_padded_text_of_full_length_equals_the_reference() -> None:
    config = replace(SIZES["tiny"], vocab_size=200)
    model = random_model(BERT, config, "none")
    inputs = random_inputs(BERT.onnx(config, "none"), config, (512, 300, 1))
    comparison = compare_with_reference(BERT, config, "none", model, inputs=inputs)
    assert max(d.absolute for d in comparison.outputs.values()) <= 1e-9


@pytest.mark.parametrize("act", typing.get_args(Activation))
def test_activations_equal_the_reference(act: Activation) -> None:
    assert_equal(BERT, replace(SMALL, activation=act, num_layers=1), "masked-lm")


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_embeddings": False},
        {"type_vocab_size": 1},
        {"pad_token_id": 5},
        {"pad_token_id": None},
        {"layer_norm_eps": 0.1},
        {"num_heads": 1},
        {"labels": ("one",), "problem": "regression"},
        {"problem": "multi_label_classification"},
    ],
    ids=str,
)
@pytest.mark.parametrize("head", ["masked-lm", "pretraining", "sequence-classification"])
def test_settings_equal_the_reference(changes: dict[str, Any], head: str) -> None:
    assert_equal(BERT, replace(SMALL, **changes), head)


def test_the_first_diverging_layer_is_named() -> None:
    model = random_model(BERT, SMALL, "masked-lm")
    names = ["embeddings", "layers.0", "layers.1", "layers.2"]
    comparison = compare_with_reference(BERT, SMALL, "masked-lm", model)
    assert list(comparison.layers) == names and comparison.first_diverging is None
    faulty_head = model.get_submodule("head")
    faulty_head.act = torch.relu  # type: ignore[assignment]
    comparison = compare_with_reference(BERT, SMALL, "masked-lm", model)
    assert comparison.first_diverging == "logits"
    faulty_layer = model.get_submodule("layers.1.ffn")
    faulty_layer.act = torch.relu  # type: ignore[assignment]
    comparison = compare_with_reference(BERT, SMALL, "masked-lm", model)
    assert comparison.first_diverging == "layers.1"
    assert (
        comparison.layers["layers.0"].relative
        < 1e-9
        < 1e-3
        < comparison.layers["layers.1"].relative
    )


# Sizes


@pytest.mark.parametrize(
    ("config", "head", "count"),
    [
        (SIZES["base"], "none", 109_482_240),
        (SIZES["base"], "pretraining", 110_106_428),
        (SIZES["base"], "masked-lm", 109_514_298),
        (SIZES["base-cased"], "none", 108_310_272),
        (SIZES["base-cased"], "pretraining", 108_932_934),
        (SIZES["base-cased"], "masked-lm", 108_340_804),
        (SIZES["large"], "none", 335_141_888),
        (SIZES["large"], "pretraining", 336_226_108),
        (SIZES["large"], "masked-lm", 335_174_458),
        (SIZES["base-multilingual-cased"], "none", 177_853_440),
        (SIZES["base-multilingual-cased"], "pretraining", 178_566_653),
        (SIZES["base-multilingual-cased"], "masked-lm", 177_974_523),
        (TINYBERT, "none", 14_350_248),
        (TINYBERT, "pretraining", 14_479_676),
    ],
)
def test_parameter_counts_are_the_published_ones(config: BertConfig, head: str, count: int) -> None:
    with init_empty_weights():
        model = BERT.model(config, head)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert BERT.weights(config, head).parameters() == count


# Configuration


def test_keys_of_the_reference_are_known() -> None:
    hub = transformers.BertConfig().to_dict()
    translated = BERT.config_map.from_hub(hub, BertConfig)
    assert translated.config == SIZES["base"]
    assert translated.unknown == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("position_embedding_type", "relative_key"),
        ("position_embedding_type", "relative_key_query"),
        ("is_decoder", True),
        ("add_cross_attention", True),
        ("is_encoder_decoder", True),
        ("tie_encoder_decoder", True),
        ("cross_attention_hidden_size", 64),
        ("hidden_act", "prelu"),
        ("pruned_heads", {"0": [1]}),
        ("per_layer_config", {"0": {"intermediate_size": 8}}),
        ("quantization_config", {"bits": 8}),
        ("num_hidden_layers", "12"),
        ("hidden_size", True),
    ],
)
def test_unimplemented_settings_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(VerificationError, match=key):
        BERT.config_map.from_hub({"model_type": "bert", key: value}, BertConfig)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": 50}, "hidden_size 50 does not split"),
        ({"num_layers": 0}, "num_layers is 0"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"classifier_dropout": -0.1}, "classifier_dropout is -0.1"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps is 0.0"),
        ({"layer_norm_eps": math.nan}, "layer_norm_eps is nan"),
        ({"pad_token_id": 101}, "pad_token_id 101 is outside"),
    ],
)
def test_invalid_configuration_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(SMALL, **changes)


def test_keys_of_older_releases_are_known() -> None:
    older = {
        "directionality": "bidi",
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
        "position_embedding_type": "absolute",
        "gradient_checkpointing": False,
        "use_cache": True,
        "is_decoder": False,
        "pruned_heads": {},
        "torchscript": False,
    }
    translated = BERT.config_map.from_hub(older, BertConfig)
    assert translated.config == SIZES["base"] and translated.unknown == ()
    assert translated.extra["pooler_type"] == "first_token_transform"


# Published weights


def test_file_of_the_first_release_is_matched() -> None:
    file = published(BERT, SMALL, "pretraining")
    file = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): info
        for name, info in file.items()
    }
    file["cls.predictions.decoder.weight"] = file["bert.embeddings.word_embeddings.weight"]
    file["cls.predictions.decoder.bias"] = file["cls.predictions.bias"]
    file["bert.embeddings.position_ids"] = TensorInfo("I64", (1, 40))
    mapping = match_tensors(BERT.weights(SMALL, "pretraining"), file)
    mapping.raise_if_incomplete("test")
    assert mapping.ties == {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    assert list(mapping.drops) == ["bert.embeddings.position_ids"]
    assert sum(name.endswith((".gamma", ".beta")) for name in mapping.renamed) == 16


@pytest.mark.parametrize("head", ["masked-lm", "token-classification", "question-answering"])
def test_unused_pooler_is_ignored_with_a_reason(head: str) -> None:
    file = published(BERT, SMALL, head)
    file["bert.pooler.dense.weight"] = TensorInfo("F32", (48, 48))
    file["bert.pooler.dense.bias"] = TensorInfo("F32", (48,))
    mapping = match_tensors(BERT.weights(SMALL, head), file)
    mapping.raise_if_incomplete("test")
    assert {drop.reason for drop in mapping.drops.values()} == {
        "the Hub's class for this head has no pooler"
    }


def test_tensors_of_distillation_are_ignored_with_a_reason() -> None:
    file = published(BERT, SMALL, "pretraining")
    file |= {f"fit_denses.{n}.weight": TensorInfo("F32", (768, 48)) for n in range(4)}
    file |= {f"fit_denses.{n}.bias": TensorInfo("F32", (768,)) for n in range(4)}
    mapping = match_tensors(BERT.weights(SMALL, "pretraining"), file)
    mapping.raise_if_incomplete("test")
    assert len(mapping.drops) == 8
    file["fit_denses.4.bias"] = TensorInfo("F32", (768,))
    assert match_tensors(BERT.weights(SMALL, "pretraining"), file).unexpected


@pytest.mark.parametrize("head", ["pretraining", "sequence-classification"])
def test_missing_pooler_of_a_head_is_an_error(head: str) -> None:
    file = published(BERT, SMALL, head)
    del file["bert.pooler.dense.weight"], file["bert.pooler.dense.bias"]
    mapping = match_tensors(BERT.weights(SMALL, head), file)
    assert mapping.missing == ("bert.pooler.dense.weight", "bert.pooler.dense.bias")


def test_file_decides_whether_the_backbone_has_a_pooler() -> None:
    file = published(BERT, replace(SMALL, pooler=False), "none")
    mapping = match_tensors(BERT.weights(SMALL, "none"), file)
    mapping.raise_if_incomplete("test")
    assert mapping.absent == ("pooler",)
    file["pooler.dense.bias"] = TensorInfo("F32", (48,))
    half = match_tensors(BERT.weights(SMALL, "none"), file)
    assert half.missing == ("bert.pooler.dense.weight",)


# Behaviour


def test_import_of_the_family_imports_no_torch() -> None:
    code = (
        "import sys, zoo_bert; family, = zoo_bert.zoo_families(); family.sizes(); family.heads();"
        "family.weights(family.sizes()['tiny'], 'none').entries(); "
        "print({'torch', 'numpy', 'tokenizers', 'onnx', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_classifiers_have_a_dropout_of_their_own() -> None:
    for rate, expected in ((None, 0.1), (0.4, 0.4), (0.0, 0.0)):
        model = BERT.model(replace(SMALL, classifier_dropout=rate), "sequence-classification")
        dropout = model.get_submodule("head.dropout")
        assert isinstance(dropout, nn.Dropout) and dropout.p == expected


def test_initialization_equals_the_papers() -> None:
    torch.manual_seed(0)
    state = BERT.model(SIZES["tiny"], "pretraining").state_dict()
    for name, tensor in state.items():
        if name.endswith("bias"):
            assert not tensor.any(), name
        elif "norm" in name:
            assert (tensor == 1).all(), name
        else:
            assert tensor.abs().max() <= 0.04, name
    tokens = state["embeddings.tokens.weight"]
    assert abs(tokens.std().item() - 0.0176) < 1e-4  # 0.02, reduced by the truncation


@pytest.mark.parametrize("head", ["sequence-classification", "token-classification"])
def test_heads_of_tasks_begin_as_wide_as_those_of_transformers(head: str) -> None:
    """Which are not truncated: a head of 0.88 of the scale learns slower at first."""
    classes = {
        "sequence-classification": transformers.BertForSequenceClassification,
        "token-classification": transformers.BertForTokenClassification,
    }
    torch.manual_seed(0)
    shape = {"num_labels": 400, "vocab_size": 10, "num_hidden_layers": 0}
    theirs = classes[head](transformers.BertConfig(**shape)).classifier.weight
    labels = tuple(map(str, range(400)))
    config = replace(SMALL, hidden_size=768, num_layers=1, intermediate_size=8, labels=labels)
    model = BERT.model(config, head)
    ours = next(weight for name, weight in model.named_parameters() if name == "head.weight")
    assert ours.shape == theirs.shape
    # 307,200 draws have their standard deviation to 0.13 %
    assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.01)
    assert ours.abs().max() > 0.06, "truncated"
