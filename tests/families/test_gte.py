"""GTE's encoder: the conformance kit, and equality with the reference library.

``new``, the model type of published files, is compared with the reference library's ``gte`` after
its keys and names are translated by hand.
"""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import transformers
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.conformance.hf_reference import build_reference, hub_state, reference_model
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.hub.source import CheckpointDir
from zoo.testing.conformance import FamilyTests
from zoo_gte import Gte
from zoo_gte.config import SIZES, GteConfig

GTE = Gte()
SMALL = GteConfig(**SMALL_SIZES, pooler=False)
NEW = replace(SMALL, model_type="new", rope_theta=500.0, ntk_factor=8.0, pad_token_id=1)


class TestGte(ReferenceTests, FamilyTests):
    family = GTE
    golden = Path(__file__).parents[1] / "golden" / "gte"
    base = replace(SIZES["tiny"], hidden_size=192, num_heads=3)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"activation": "silu"},
        {"pooler": True},
        {"layer_norm_eps": 0.1},
        {"rope_theta": 50.0},
        {"type_vocab_size": 0},
        {"type_vocab_size": 3, "num_heads": 2},
        {"tie_embeddings": False},
        {"labels": ("one",), "problem": "regression"},
    )
    default = GteConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("rope_parameters.rope_type", "dynamic"): "rope_type",
        ("is_decoder", True): "is_decoder",
        ("type_vocab_size", -1): "type_vocab_size",
    }
    counts: ClassVar[dict[tuple[str, str], int]] = {}
    variants = ({"type_vocab_size": 0},)
    carried: ClassVar[dict[str, Any]] = {"bos_token_id": 0}


# config.json of gte-multilingual-base
PUBLISHED: dict[str, Any] = {
    "architectures": ["NewModel"],
    "attention_probs_dropout_prob": 0.0,
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
    "classifier_dropout": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "id2label": {"0": "LABEL_0"},
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "label2id": {"LABEL_0": 0},
    "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "max_position_embeddings": 8192,
    "model_type": "new",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pack_qkv": True,
    "pad_token_id": 1,
    "position_embedding_type": "rope",
    "rope_scaling": {"factor": 8.0, "type": "ntk"},
    "rope_theta": 20000,
    "torch_dtype": "float16",
    "transformers_version": "4.39.1",
    "type_vocab_size": 1,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
    "vocab_size": 250048,
}


def test_a_published_configuration_is_read() -> None:
    translated = GTE.from_hub(PUBLISHED)
    stated = {"labels": translated.config.labels, "classifier_dropout": 0.0}
    assert translated.config == replace(SIZES["multilingual-base"], **stated)
    assert translated.unknown == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("position_embedding_type", "absolute"),
        ("layer_norm_type", "rms_norm"),
        ("logn_attention_scale", True),
        ("logn_attention_clip1", True),
        ("pack_qkv", False),
        ("rope_scaling.type", "dynamic"),
        ("rope_scaling.mixed_b", 0.5),
        ("rope_scaling.factor", 0.5),
    ],
)
def test_settings_of_the_published_code_are_refused_by_name(key: str, value: Any) -> None:
    group, _, name = key.rpartition(".")
    scaling = {"factor": 8.0, "type": "ntk"}
    changes = {"rope_scaling": {**scaling, name: value}} if group else {key: value}
    with pytest.raises(VerificationError, match=name if name != "factor" else "ntk_factor"):
        GTE.from_hub({**PUBLISHED, **changes})


def published_frequencies(config: GteConfig) -> torch.Tensor:
    """``NTKScalingRotaryEmbedding`` of the published code, with its steps in this order."""
    size = config.hidden_size // config.num_heads
    factor = config.ntk_factor
    assert factor is not None
    base = config.rope_theta * factor
    inverse = 1.0 / (base ** (torch.arange(0, size, 2).double() / size))
    scaled: torch.Tensor = inverse / factor ** (2 / size)
    return scaled


def reference_of_new(config: GteConfig, head: str, state: Any) -> Any:
    """Return the reference library's model with the names and keys of ``new`` translated.

    Its ``gte`` has no NTK scaling: the frequencies are those of a larger base with a linear one.
    """
    weights = {
        name.replace("new.", "gte.", 1): tensor
        for name, tensor in hub_state(GTE.weights(config, head), state).items()
    }
    plain = replace(config, model_type="gte", ntk_factor=None)
    hub = GTE.to_hub(plain)
    factor = config.ntk_factor
    if factor is not None:
        hub["rope_parameters"] = {
            "rope_type": "linear",
            "rope_theta": config.rope_theta * factor,
            "factor": factor ** (2 / config.head_size),
        }
    return build_reference(GTE, plain, head, weights, hub)


@pytest.mark.parametrize("factor", [None, 2.0, 8.0])
@pytest.mark.parametrize("head", list(GTE.heads()))
def test_new_equals_the_reference_after_its_keys_are_translated(
    head: str, factor: float | None
) -> None:
    config = replace(NEW, ntk_factor=factor)
    model = parity.random_model(GTE, config, head)
    reference = reference_of_new(config, head, model.state_dict())
    inputs = random_inputs(GTE.onnx(config, head), config, (40, 17))
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        ours, theirs = model(**inputs), reference(**inputs)
    for mine, other in zip(ours.values(), theirs.values(), strict=True):
        difference = (mine - other).abs()
        if difference.shape[:2] == real.shape:
            difference = difference[real]
        assert difference.max() <= 1e-9


def test_frequencies_are_those_of_the_published_code() -> None:
    model: Any = GTE.model(NEW, "none")
    rotation = model.rotary(torch.arange(40)[None])
    angles = torch.arange(40).double()[:, None] * published_frequencies(NEW)
    assert torch.allclose(rotation.cos[0, 0].double(), angles.cos(), rtol=0, atol=1e-5)
    assert torch.allclose(rotation.sin[0, 0].double(), angles.sin(), rtol=0, atol=1e-5)


def test_a_published_checkpoint_is_converted_there_and_back(tmp_path: Path) -> None:
    """It has the weights of tokens for sparse retrieval, which the backbone leaves out."""
    small = {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 80}
    keys = {**PUBLISHED, **small, "num_hidden_layers": 2, "vocab_size": 101}
    config = replace(GTE.from_hub(keys).config, pooler=False)
    model: Any = GTE.model(config, "none")
    randomize_weights(model)
    weights = {
        f"new.{name}": tensor.contiguous()
        for name, tensor in hub_state(GTE.weights(config, "none"), model.state_dict()).items()
    }
    assert "new.encoder.layer.1.mlp.up_gate_proj.weight" in weights
    source = tmp_path / "source"
    source.mkdir()
    extra = {"classifier.weight": torch.randn(1, 48), "classifier.bias": torch.randn(1)}
    save_file({**weights, **extra}, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(keys))
    convert(CheckpointDir(source, "source"), tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    after = load_file(tmp_path / "back" / "model.safetensors")
    before = {name.removeprefix("new."): tensor for name, tensor in weights.items()}
    assert after.keys() == before.keys()
    assert [name for name in after if not torch.equal(after[name], before[name])] == []
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    of_versions = ("transformers_version", "torch_dtype")
    same = {name: written.get(name) for name in keys if name not in of_versions}
    assert same == {name: value for name, value in keys.items() if name in same}


def test_gradients_equal_the_reference() -> None:
    model = parity.random_model(GTE, SMALL, "masked-lm")
    reference: Any = reference_model(GTE, SMALL, "masked-lm", model.state_dict())
    ids = torch.arange(20).reshape(2, 10) + 5
    model(ids)["logits"].square().mean().backward()
    reference.requires_grad_(True)
    reference(ids).logits.square().mean().backward()
    ours = model.get_parameter("layers.0.ffn.up.weight").grad
    layer = reference.gte.layers[0].mlp
    theirs = torch.cat((layer.up_proj.weight.grad, layer.gate_proj.weight.grad))
    assert ours is not None
    assert (ours - theirs).abs().max() <= 1e-9


def test_classes_of_both_types_are_known() -> None:
    assert GTE.architecture(SMALL, "sequence-classification") == "GteForSequenceClassification"
    assert GTE.architecture(NEW, "sequence-classification") == "NewForSequenceClassification"
    assert not hasattr(transformers, "NewModel")
