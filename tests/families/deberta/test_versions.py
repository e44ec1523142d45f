"""DeBERTa: the conformance kit, and equality with the reference library."""

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from tests.exporting.making import export_onnx
from tests.families.deberta.versions import (
    CASES,
    DEBERTA,
    FIRST,
    SECOND,
    SHARED_HEADS,
    THIRD,
    VERSIONS,
)
from tests.families.further_version import FurtherVersionTests
from tests.families.parity import assert_equal, assert_equal_at_all_lengths, random_model
from tests.inference.making import make_checkpoint
from zoo.checkpoint import load_checkpoint
from zoo.families.random_inputs import random_inputs
from zoo.inference import load_session
from zoo.testing.conformance import FamilyTests
from zoo_deberta.config import SIZES, DebertaConfig


class TestThird(FamilyTests):
    family = DEBERTA
    golden = Path(__file__).parents[2] / "golden" / "deberta"


class TestSecond(FurtherVersionTests):
    family = DEBERTA

    @property
    def config(self) -> DebertaConfig:
        return replace(SECOND, enhanced_decoder=True, conv_groups=2, type_vocab_size=3)


class TestFirst(FurtherVersionTests):
    family = DEBERTA

    @property
    def config(self) -> DebertaConfig:
        return replace(FIRST, enhanced_decoder=True, type_vocab_size=2)


@pytest.mark.by_default(
    "first-none",
    "first-masked-lm",
    "second-none",
    "second-sequence-classification",
    "third-masked-lm",
    "third-token-classification",
    "third-question-answering",
    "third-multiple-choice",
)
@pytest.mark.parametrize(("version", "head"), CASES)
def test_each_version_equals_the_reference(version: str, head: str) -> None:
    assert_equal(DEBERTA, VERSIONS[version], head)


@pytest.mark.parametrize(
    "changes",
    [
        {"position_terms": ("p2c",)},
        {"position_terms": "c2p"},
        {"position_terms": None},
        {"relative_attention": False, "norm_rel_ebd": "none"},
        {"share_att_key": False},
        {"norm_rel_ebd": "none"},
        {"position_buckets": -1},
        {"position_buckets": -1, "max_relative_positions": 9},
        {"position_buckets": 6, "max_relative_positions": 16},
        {"position_biased_input": True, "type_vocab_size": 2},
        {"conv_kernel_size": 5, "conv_groups": 4, "conv_activation": "tanh"},
        {"legacy_names": True},
        {"layer_norm_eps": 0.1, "activation": "relu"},
        {"pooler_activation": "tanh", "labels": ("one",), "problem": "regression"},
    ],
    ids=str,
)
@pytest.mark.parametrize("head", ["masked-lm", "sequence-classification"])
def test_settings_equal_the_reference(changes: dict[str, Any], head: str) -> None:
    assert_equal(DEBERTA, replace(THIRD, **changes), head)


@pytest.mark.parametrize(
    "changes",
    [
        {"position_terms": ("p2c",)},
        {"relative_attention": False},
        {"max_relative_positions": 9},
        {"position_biased_input": True, "type_vocab_size": 2},
        {"legacy_names": True},
    ],
    ids=str,
)
def test_settings_of_the_first_version_equal_the_reference(changes: dict[str, Any]) -> None:
    assert_equal(DEBERTA, replace(FIRST, **changes), "masked-lm")


@pytest.mark.parametrize(
    ("size", "head"), [("base", "none"), *(("v3-base", head) for head in SHARED_HEADS)]
)
@pytest.mark.long
def test_base_equals_the_reference(size: str, head: str) -> None:
    config = replace(SIZES[size], enhanced_decoder=False)
    assert_equal_at_all_lengths(DEBERTA, config, head)


# the widest takes as long as the others together
@pytest.mark.long
@pytest.mark.parametrize(
    "size", ["large", pytest.param("v2-xlarge", marks=pytest.mark.long), "v3-xsmall"]
)
def test_other_widths_equal_the_reference(size: str) -> None:
    config = replace(SIZES[size], num_layers=2, vocab_size=200, enhanced_decoder=False)
    assert_equal(DEBERTA, config, "masked-lm")


def test_dropouts_are_those_of_the_configuration() -> None:
    config = replace(THIRD, dropout=0.2, classifier_dropout=0.4, pooler_dropout=0.3)
    model = DEBERTA.model(config, "sequence-classification")
    rates = {"pooler": 0.3, "head": 0.4, "layers.0": 0.2, "embeddings": 0.2}
    for place, expected in rates.items():
        dropout = model.get_submodule(place).dropout
        assert isinstance(dropout, nn.Dropout) and dropout.p == expected, place
    assert model.get_submodule("layers.0.attention.position_dropout").p == 0.2


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("head", ["masked-lm", "multiple-choice"])
@pytest.mark.long
def test_a_graph_equals_torch_at_every_length(version: str, head: str, tmp_path: Path) -> None:
    names = ("key_bias", "position_buckets", "share_att_key", "norm_rel_ebd", "conv_kernel_size")
    fields = {name: getattr(VERSIONS[version], name) for name in names}
    layers = 2 if head == "masked-lm" else 1  # its decoder reads the last layer but one
    checkpoint = make_checkpoint(
        tmp_path / "model", head, family=DEBERTA, num_layers=layers, **fields
    )
    export_onnx(checkpoint, tmp_path / "graph")
    graph = load_session(load_checkpoint(tmp_path / "graph"))
    torch_session = load_session(checkpoint, "cpu")
    spec = DEBERTA.onnx(checkpoint.config, head)
    for lengths in ((1,), (40, 21), (3, 9, 30)):
        batch = {n: t.numpy() for n, t in random_inputs(spec, checkpoint.config, lengths).items()}
        expected, outputs = torch_session.run(batch), graph.run(batch)
        for name, array in expected.items():
            assert abs(array - outputs[name]).max() <= 1e-5 * abs(array).max(), (name, lengths)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_padding_does_not_overflow_in_half_precision(dtype: torch.dtype) -> None:
    model = random_model(DEBERTA, SECOND, "none")
    inputs = random_inputs(DEBERTA.onnx(SECOND, "none"), SECOND, (40, 1))
    with torch.no_grad():
        exact = model(**inputs)["last_hidden_state"]
        half = model.to(dtype)(**inputs)["last_hidden_state"]
    assert half.dtype is dtype and half.isfinite().all()
    real = inputs["attention_mask"].bool()
    assert (half.double() - exact)[real].abs().max() <= 0.1 * exact.abs().max()
