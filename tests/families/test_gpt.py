"""GPT: the conformance kit, and equality with the reference library at full size."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace
from torch import nn

from tests.families.further_version import FurtherVersionTests
from tests.families.parity import assert_batch_equal, assert_equal, published, random_model
from zoo.conformance.hf_reference import reference_model
from zoo.errors import UsageError, VerificationError
from zoo.families.random_inputs import random_inputs
from zoo.hub.registry import builtin, entry_config
from zoo.io.tensors.formats import TensorInfo
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.nn.transformer import SelfAttention
from zoo.testing.conformance import FamilyTests
from zoo.weights import match_tensors
from zoo_gpt import Gpt
from zoo_gpt.config import SIZES, GptConfig

GPT = Gpt()
BOTH = ("none", "causal-lm", "sequence-classification")  # the only heads of the first GPT
SMALL = GptConfig(
    vocab_size=101,
    hidden_size=48,
    num_layers=3,
    num_heads=4,
    max_positions=40,
    pad_token_id=7,
    labels=("one", "two", "three"),
)
FIRST = replace(SMALL, norm="post")
HEADS = [head for head in GPT.heads() if GPT.has_reference(SMALL, head)]


class TestGpt2(FamilyTests):
    family = GPT
    golden = Path(__file__).parents[1] / "golden" / "gpt"


class TestGpt1(FurtherVersionTests):
    family = GPT

    @property
    def config(self) -> GptConfig:
        return replace(SIZES["tiny"], norm="post", labels=("one", "two", "three"))


# Parity with the reference library


@pytest.mark.parametrize("head", HEADS)
def test_small_shapes_equal_the_reference(head: str) -> None:
    assert_equal(GPT, SMALL, head)


@pytest.mark.parametrize("head", BOTH)
def test_small_shapes_of_the_first_gpt_equal_the_reference(head: str) -> None:
    assert_equal(GPT, FIRST, head)


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_embeddings": False},
        {"scale_attention": False},
        {"scale_by_layer": True},
        {"scale_attention": False, "scale_by_layer": True},
        {"intermediate_size": 70},
        {"activation": "relu"},
        {"activation": "gelu"},
        {"layer_norm_eps": 0.1},
        {"num_heads": 1},
        {"pad_token_id": 0},
        {"labels": ("one",), "problem": "regression"},
        {"norm": "post", "activation": "relu"},
        {"norm": "post", "activation": "silu", "layer_norm_eps": 0.1},
        {"norm": "post", "tie_embeddings": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("head", ["causal-lm", "sequence-classification"])
def test_settings_equal_the_reference(changes: dict[str, Any], head: str) -> None:
    assert_equal(GPT, replace(SMALL, **changes), head)


@pytest.mark.parametrize(
    ("size", "head"),
    [*(("small", head) for head in HEADS), *(("gpt", head) for head in BOTH)],
)
@pytest.mark.long
def test_base_size_equals_the_reference(size: str, head: str) -> None:
    config = replace(SIZES[size], pad_token_id=50 if head == "sequence-classification" else None)
    spec, model = GPT.onnx(config, head), random_model(GPT, config, head)
    reference = reference_model(GPT, config, head, model.state_dict())
    cases = [(torch.float64, (17, 9)), (torch.float32, (17, 9, 1))]
    if head == "none":  # at maximum length
        cases += [(torch.float32, (config.max_positions,))]
    for dtype, lengths in cases:
        assert_batch_equal(model.to(dtype), reference.to(dtype), spec, config, lengths)


@pytest.mark.parametrize("config", [SMALL, FIRST], ids=["gpt2", "gpt"])
@pytest.mark.parametrize("head", ["none", "causal-lm", "sequence-classification"])
def test_padding_on_the_left_changes_nothing(config: GptConfig, head: str) -> None:
    model = random_model(GPT, config, head)
    inputs = random_inputs(GPT.onnx(config, head), config, (9,))
    padded = {n: nn.functional.pad(t, (5, 0), value=0) for n, t in inputs.items()}
    padded["input_ids"][:, :5] = 7
    with torch.no_grad():
        alone, outputs = model(**inputs), model(**padded)
    for name, expected in alone.items():
        real = outputs[name] if head == "sequence-classification" else outputs[name][:, 5:]
        assert (real - expected).abs().max() <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 30, 300])  # the last exceeds the range of float16
def test_attention_scores_are_computed_in_float32(dtype: torch.dtype, size: int) -> None:
    """The precision that ``reorder_and_upcast_attn`` sets is the default."""
    torch.manual_seed(0)
    attention = SelfAttention(hidden_size=64, num_heads=1, dropout=0.0, causal=True, scale=1.0)
    with torch.no_grad():
        attention.qkv.weight.normal_(std=0.125)
        attention.qkv.weight[:64] *= size
        attention.out.weight.copy_(torch.eye(64))
        attention.out.bias.zero_()
        attention, x = attention.to(dtype), torch.randn(2, 33, 64).to(dtype) * 4
        q, k, v = attention.qkv(x).double().chunk(3, dim=-1)
        scores = q @ k.mT
        assert (scores.abs().max() > 65504) == (size == 300)
        scores += torch.full((33, 33), -torch.inf, dtype=scores.dtype).triu(1)
        error = (attention(x) - scores.softmax(-1) @ v).abs().max()
        assert error <= torch.finfo(dtype).eps * v.abs().max()


# Sizes


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("gpt", 116_534_784),
        ("small", 124_439_808),
        ("medium", 354_823_168),
        ("large", 774_030_080),
        ("xl", 1_557_611_200),
        ("distil", 81_912_576),
    ],
)
def test_parameter_counts_are_the_published_ones(size: str, count: int) -> None:
    with init_empty_weights():
        model = GPT.model(SIZES[size], "causal-lm")
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert GPT.weights(SIZES[size], "causal-lm").parameters() == count


def test_registry_rows_have_the_count_of_their_configuration() -> None:
    rows = {name: row for name, row in builtin().items() if row.family == "gpt"}
    assert rows.keys() >= {"openai-gpt", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"}
    for name, row in rows.items():
        config = entry_config(name, row)
        assert isinstance(config, GptConfig) and row.head is not None and row.head is not None
        assert GPT.weights(config, row.head).parameters() == row.parameters, name


# Configuration


@pytest.mark.parametrize(
    ("kind", "size"), [("GPT2Config", "small"), ("OpenAIGPTConfig", "gpt")], ids=["gpt2", "gpt"]
)
def test_keys_of_the_reference_are_known(kind: str, size: str) -> None:
    hub = getattr(transformers, kind)().to_dict()
    translated = GPT.from_hub(hub)
    assert translated.config == SIZES[size]
    assert translated.unknown == ()


def test_defaults_of_an_empty_configuration_equal_the_reference() -> None:
    assert GPT.from_hub({"model_type": "gpt2"}).config == SIZES["small"]
    assert GPT.from_hub({"model_type": "openai-gpt"}).config == SIZES["gpt"]


def test_alias_keys() -> None:
    general = {
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "max_position_embeddings": 99,
    }
    values = {"n_embd": 64, "n_layer": 3, "n_head": 8, "n_positions": 99}
    for model_type in GPT.model_types:
        translated = GPT.from_hub({"model_type": model_type, **general})
        assert translated.config == GPT.from_hub({"model_type": model_type, **values}).config
        back = GPT.to_hub(translated.config, translated.extra)
        assert back.items() >= {**values, **general}.items() and translated.unknown == ()


def test_contradicting_aliases_are_refused() -> None:
    with pytest.raises(VerificationError, match="hidden_size = 64 contradicts n_embd = 32"):
        GPT.from_hub({"model_type": "gpt2", "hidden_size": 64, "n_embd": 32})


def test_the_first_gpts_gelu_is_the_approximation() -> None:
    config = GPT.from_hub({"model_type": "openai-gpt", "afn": "gelu"}).config
    assert isinstance(config, GptConfig) and config.activation == "gelu_new"
    assert GPT.to_hub(config)["afn"] == "gelu"
    with pytest.raises(VerificationError, match="afn = 'tanh' is not implemented"):
        GPT.from_hub({"model_type": "openai-gpt", "afn": "tanh"})
    with pytest.raises(VerificationError, match="afn has no word for 'tanh'"):
        GPT.to_hub(replace(FIRST, activation="tanh"))


def test_published_configurations_are_known() -> None:
    summary = {
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
    }
    shape = {"n_embd": 768, "n_head": 12, "n_layer": 12, "layer_norm_epsilon": 1e-05}
    first = {"model_type": "openai-gpt", "afn": "gelu", "n_ctx": 512, "n_positions": 512}
    first |= {"n_special": 0, "predict_special_tokens": True, "vocab_size": 40478}
    second = {"model_type": "gpt2", "activation_function": "gelu_new", "n_ctx": 1024}
    second |= {"n_positions": 1024, "vocab_size": 50257, "bos_token_id": 50256}
    assert GPT.from_hub({**first, **shape, **summary}).unknown == ()
    assert GPT.from_hub({**second, **shape, **summary}).unknown == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("add_cross_attention", True),
        ("is_encoder_decoder", True),
        ("activation_function", "prelu"),
        ("n_layer", "12"),
        ("classifier_dropout", 0.3),
        ("summary_type", "mean"),
        ("summary_use_proj", False),
        ("summary_activation", "tanh"),
        ("summary_proj_to_labels", False),
        ("quantization_config", {"bits": 8}),
    ],
)
def test_unimplemented_settings_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(VerificationError, match=key):
        GPT.from_hub({"model_type": "gpt2", key: value})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": 50}, "hidden_size 50 does not split"),
        ({"num_layers": 0}, "num_layers is 0"),
        ({"intermediate_size": 0}, "intermediate_size is 0"),
        ({"embedding_dropout": 1.0}, "embedding_dropout is 1.0"),
        ({"layer_norm_eps": math.nan}, "layer_norm_eps is nan"),
        ({"pad_token_id": 101}, "pad_token_id 101 is outside"),
        ({"norm": "post", "intermediate_size": 64}, "norm post goes with"),
        ({"norm": "post", "scale_by_layer": True}, "norm post goes with"),
    ],
)
def test_invalid_configuration_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(SMALL, **changes)


def test_heads_that_the_hub_does_not_have_are_named() -> None:
    with pytest.raises(UsageError, match="no class for the first GPT with the head question"):
        GPT.architecture(FIRST, "question-answering")


# Published weights


@pytest.mark.parametrize("config", [SMALL, FIRST], ids=["gpt2", "gpt"])
def test_files_of_the_first_release_are_matched(config: GptConfig) -> None:
    bare = {
        n.removeprefix("transformer."): i for n, i in published(GPT, config, "causal-lm").items()
    }
    buffers = {f"h.{i}.attn.bias": TensorInfo("F32", (1, 1, 40, 40)) for i in range(3)}
    buffers |= {f"h.{i}.attn.masked_bias": TensorInfo("F32", ()) for i in range(3)}
    mapping = match_tensors(GPT.weights(config, "causal-lm"), bare | buffers)
    mapping.raise_if_incomplete("test")
    assert mapping.drops.keys() == buffers.keys()
    assert [drop for drop in mapping.drops.values() if not drop.value_check] == []


def test_names_of_the_first_release_are_known() -> None:
    ends = {"weight": "w", "bias": "b"}
    old = {}
    for name, info in published(GPT, FIRST, "none").items():
        stem, _, end = name.rpartition(".")
        norm = stem.endswith(("ln_1", "ln_2")) and end == "weight"
        old[name if "embed" in name else f"{stem}.{'g' if norm else ends[end]}"] = info
    mapping = match_tensors(GPT.weights(FIRST, "none"), old)
    mapping.raise_if_incomplete("test")
    assert len(mapping.renamed) == 3 * 12


# Conversion in both directions


CLASSES = {
    "GPT2Model": "none",
    "GPT2LMHeadModel": "causal-lm",
    "GPT2ForSequenceClassification": "sequence-classification",
    "GPT2ForTokenClassification": "token-classification",
    "GPT2ForQuestionAnswering": "question-answering",
    "OpenAIGPTModel": "none",
    "OpenAIGPTLMHeadModel": "causal-lm",
    "OpenAIGPTForSequenceClassification": "sequence-classification",
    "GPT2DoubleHeadsModel": "multiple-choice",
    "OpenAIGPTDoubleHeadsModel": "multiple-choice",
}


@pytest.mark.by_default(
    "GPT2DoubleHeadsModel",
    "OpenAIGPTLMHeadModel",
)
@pytest.mark.parametrize("architecture", CLASSES)
def test_hub_round_trip(architecture: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from zoo.conversion.convert import convert
    from zoo.hub.source import CheckpointDir

    kind = getattr(transformers, architecture)
    config = kind.config_class(vocab_size=31, n_embd=16, n_layer=2, n_head=2, n_positions=9)
    model = kind(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    model.save_pretrained(tmp_path / "hub")
    report = convert(CheckpointDir(tmp_path / "hub", "test"), tmp_path / "ours")
    assert report.head == CLASSES[architecture]
    convert(CheckpointDir(tmp_path / "ours", "test"), tmp_path / "back", to="hub")
    before, after = (load_file(tmp_path / d / "model.safetensors") for d in ("hub", "back"))
    if architecture == "OpenAIGPTDoubleHeadsModel":  # the only class that stores the tied alias
        before["transformer.tokens_embed.weight"] = before.pop("lm_head.weight")
    assert before.keys() == after.keys()
    assert [name for name, tensor in before.items() if not torch.equal(after[name], tensor)] == []
    again, loading = kind.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    stored = json.loads((tmp_path / "back" / "config.json").read_text())
    assert stored["architectures"] == [architecture]
    assert stored["model_type"] == kind.config_class.model_type
    original = kind.from_pretrained(tmp_path / "hub").config.to_dict()
    assert again.config.to_dict() == {**original, "_name_or_path": str(tmp_path / "back")}
