"""Ettin's decoders: the conformance kit, and equality with the reference library."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from msgspec.structs import replace

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.conformance.hf_reference import hub_state, keep_float64, reference_model
from zoo.errors import VerificationError
from zoo.testing.conformance import FamilyTests
from zoo_ettin import Ettin
from zoo_ettin.config import SIZES, EttinConfig

ETTIN = Ettin()
# A token attends to four tokens in local attention.
SMALL = EttinConfig(**SMALL_SIZES, pad_token_id=3, local_attention=8)


class TestEttin(ReferenceTests, FamilyTests):
    family = ETTIN
    golden = Path(__file__).parents[1] / "golden" / "ettin"
    base = replace(SIZES["17m"], vocab_size=1000, max_positions=512, pad_token_id=3)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"global_attn_every_n_layers": 1, "global_rope_theta": 90.0},
        {"global_attn_every_n_layers": 2, "local_attention": 5, "local_rope_theta": 70.0},
        {"local_attention": 2, "classifier_activation": "relu"},
        {"tie_embeddings": False, "activation": "silu", "local_attention": 200},
        {"layer_norm_eps": 0.1, "initializer_range": 0.3},
        {"labels": ("one",), "problem": "regression"},
    )
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("attention_bias", True): "attention_bias",
        ("mlp_bias", True): "mlp_bias",
        ("norm_bias", True): "norm_bias",
        ("classifier_bias", True): "classifier_bias",
        ("decoder_bias", False): "decoder_bias",
        ("is_causal", False): "is_causal",
        ("pad_token_id", None): "pad_token_id",
        ("local_attention", None): "local_attention",
        ("local_attention", 1): "local_attention 1 is less than 2",
        ("layer_types", ("full_attention",) * 22): "layer_types",
        ("sliding_window", 128): "sliding_window",
        ("rope_scaling", (("type", "linear"), ("factor", 2.0))): "rope_scaling",
        ("hidden_activation", "prelu"): "hidden_activation",
    }
    # The same as of the encoders, whose head has as many parameters:
    # V (D + 1) + D + L (4 D^2 + 3 D F + 2 D) - D + D + D^2 + D.
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("17m", "causal-lm"): 16_913_600,
        ("150m", "causal-lm"): 149_655_232,
        ("1b", "causal-lm"): 1_031_314_112,
    }
    variants = ({"tie_embeddings": False}, {"global_attn_every_n_layers": 2})
    default = EttinConfig()
    carried: ClassVar[dict[str, Any]] = {"bos_token_id": 1, "eos_token_id": 2}
    half = "causal-lm"


def test_old_names_of_the_bases_are_the_new_ones() -> None:
    """Published files have them; transformers 5 writes ``rope_parameters``."""
    old = {"global_rope_theta": 160_000.0, "local_rope_theta": 50.0}
    new = {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 160_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        }
    }
    spellings = []
    for keys in (old, new):
        spellings.append(ETTIN.from_hub({"model_type": "modernbert-decoder", **keys}).config)
    assert spellings[0] == spellings[1] == replace(EttinConfig(), local_rope_theta=50.0)
    with pytest.raises(VerificationError, match="contradicts"):
        ETTIN.from_hub({"model_type": "modernbert-decoder", **new, "local_rope_theta": 60.0})


def test_generation_equals_the_reference() -> None:
    """The search goes beyond the window."""
    parity.assert_generation_equals_the_reference(ETTIN, SMALL)


def test_gradients_equal_the_reference() -> None:
    """Of every parameter, in float64."""
    # The last token is padding, and no input: the reference's has no gradient.
    config = replace(SMALL, pad_token_id=SMALL.vocab_size - 1)
    model = parity.random_model(ETTIN, config, "causal-lm")
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    reference = reference_model(ETTIN, config, "causal-lm", state)
    inputs = {"input_ids": torch.arange(1, 41).reshape(2, 20)}
    logits = model(**inputs)["logits"]
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0)).double()
    (logits * weights).sum().backward()
    with keep_float64():
        (reference(**inputs).logits * weights).sum().backward()
    gradients = {}
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        gradients[key] = parameter.grad
    expected = dict(reference.named_parameters())
    compared = hub_state(ETTIN.weights(config, "causal-lm"), gradients)
    assert compared.keys() == expected.keys()
    for key, gradient in compared.items():
        right = expected[key].grad
        assert right is not None
        assert (gradient - right).abs().max() <= 1e-9 * max(1.0, float(right.abs().max())), key
