"""DeBERTa: the conformance kit, the reference library's outputs, and the released decoder's."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.deberta import modeling_deberta

from zoo.testing.conformance import FamilyTests
from zoo.testing.draws import draw_weights
from zoo.testing.oracle import compare_with_reference
from zoo_deberta import Deberta
from zoo_deberta.config import SIZES, DebertaConfig

DEBERTA = Deberta()
HEADS = list(DEBERTA.heads())
# those that the reference library has, and computes as we do
SHARED_HEADS = [h for h in HEADS if h not in ("replaced-token-detection", "pretraining")]
FIRST = DebertaConfig(
    vocab_size=101,
    hidden_size=48,
    num_layers=3,
    num_heads=4,
    intermediate_size=80,
    max_positions=40,
    key_bias=False,
    relative_attention=True,
    position_terms="c2p|p2c",
    position_biased_input=False,
    enhanced_decoder=False,
)
THIRD = replace(
    FIRST, key_bias=True, position_buckets=8, share_att_key=True, norm_rel_ebd="layer_norm"
)
SECOND = replace(THIRD, conv_kernel_size=3, conv_activation="gelu")
VERSIONS = {"first": FIRST, "second": SECOND, "third": THIRD}


@pytest.fixture(autouse=True)
def norms_of_one_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's norms of version 1 compute in float32 whatever the model's dtype is."""

    def forward(norm: Any, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.variance_epsilon)

    monkeypatch.setattr(modeling_deberta.DebertaLayerNorm, "forward", forward)


class TestThird(FamilyTests):
    family = DEBERTA


class TestSecond(FamilyTests):
    family = DEBERTA

    @property
    def config(self) -> DebertaConfig:
        return replace(SECOND, enhanced_decoder=True, conv_groups=2, type_vocab_size=3)


class TestFirst(FamilyTests):
    family = DEBERTA

    @property
    def config(self) -> DebertaConfig:
        return replace(FIRST, enhanced_decoder=True, type_vocab_size=2)


def random_model(config: DebertaConfig, head: str) -> nn.Module:
    with torch.device("meta"):
        model = DEBERTA.model(config, head)
    model = model.double().to_empty(device="cpu").eval()
    draw_weights(model)
    return model


def assert_equal_to_reference(config: DebertaConfig, head: str) -> None:
    model = random_model(config, head)
    exact = compare_with_reference(DEBERTA, config, head, model, tolerance=1e-9)
    assert max(d.absolute for d in exact.outputs.values()) <= 1e-9
    assert exact.first_diverging is None
    single = compare_with_reference(DEBERTA, config, head, model.float())
    assert max(d.relative for d in single.outputs.values()) <= 1e-5
    assert single.first_diverging is None


# Parity with the reference library


@pytest.mark.parametrize("head", SHARED_HEADS)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_equals_the_reference(version: str, head: str) -> None:
    assert_equal_to_reference(VERSIONS[version], head)


# Sizes


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("base", 138_601_728),
        ("large", 405_163_008),
        ("v3-xsmall", 70_682_112),
        ("v3-small", 141_304_320),
        ("v3-base", 183_831_552),
        ("v3-large", 434_012_160),
    ],
)
def test_parameter_counts_are_the_published_ones(size: str, count: int) -> None:
    with torch.device("meta"):
        model = DEBERTA.model(SIZES[size], "none")
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert DEBERTA.weights(SIZES[size], "none").parameters() == count
