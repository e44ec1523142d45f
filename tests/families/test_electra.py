"""ELECTRA: the conformance kit, and the reference library's outputs on random weights."""

from pathlib import Path
from typing import Any

import pytest
import transformers
from msgspec.structs import replace

from tests.families import parity
from zoo.errors import VerificationError
from zoo.testing.conformance import FamilyTests
from zoo_electra import Electra
from zoo_electra.config import SIZES, ElectraConfig

ELECTRA = Electra()
HEADS = list(ELECTRA.heads())
SMALL = ElectraConfig(
    vocab_size=101,
    embedding_size=24,
    hidden_size=48,
    num_layers=3,
    num_heads=4,
    intermediate_size=80,
    max_positions=40,
    type_vocab_size=3,
    labels=("one", "two", "three"),
)


class TestElectra(FamilyTests):
    family = ELECTRA
    golden = Path(__file__).parents[1] / "golden" / "electra"


@pytest.mark.parametrize("head", HEADS)
def test_base_equals_the_reference(head: str) -> None:
    parity.assert_equal_at_all_lengths(ELECTRA, SIZES["base"], head)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("size", ["small", "large", "base-generator", "large-generator"])
def test_other_sizes_equal_the_reference(size: str, head: str) -> None:
    parity.assert_equal(ELECTRA, replace(SIZES[size], num_layers=2, vocab_size=200), head)


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_embeddings": False},
        {"embedding_size": 48},
        {"embedding_size": 96},
        {"type_vocab_size": 1},
        {"pad_token_id": 5},
        {"activation": "relu"},
        {"layer_norm_eps": 0.1},
        {"labels": ("one",), "problem": "regression"},
    ],
    ids=str,
)
@pytest.mark.parametrize("head", HEADS)
def test_settings_equal_the_reference(changes: dict[str, Any], head: str) -> None:
    parity.assert_equal(ELECTRA, replace(SMALL, **changes), head)


@pytest.mark.parametrize(
    ("size", "head", "count"),
    [
        ("small", "none", 13_483_008),
        ("small", "replaced-token-detection", 13_549_057),
        ("small-generator", "masked-lm", 13_546_682),
        ("base", "none", 108_891_648),
        ("base", "replaced-token-detection", 109_483_009),
        ("base-generator", "none", 33_511_168),
        ("base-generator", "masked-lm", 33_740_602),
        ("large", "none", 334_092_288),
        ("large", "replaced-token-detection", 335_142_913),
        ("large-generator", "none", 50_999_552),
        ("large-generator", "masked-lm", 51_295_290),
    ],
)
def test_parameter_counts_are_the_published_ones(size: str, head: str, count: int) -> None:
    assert parity.count(ELECTRA, SIZES[size], head) == count


def test_every_key_of_the_reference_is_known() -> None:
    found = ELECTRA.from_hub(transformers.ElectraConfig().to_dict())
    assert found.config == SIZES["small"] and found.unknown == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("is_decoder", True),
        ("hidden_act", "quick_gelu"),
        ("summary_type", "mean"),
        ("summary_use_proj", False),
        ("summary_activation", "tanh"),
        ("summary_first_dropout", 0.1),
        ("summary_proj_to_labels", True),
        ("embedding_size", 0),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(VerificationError, match=key):
        ELECTRA.from_hub({"model_type": "electra", key: value})


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("embedding_size", [24, 48])
def test_there_and_back(head: str, embedding_size: int, tmp_path: Path) -> None:
    config = replace(SMALL, embedding_size=embedding_size)
    parity.assert_there_and_back(ELECTRA, config, head, tmp_path, summary_type="first")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("tie", [True, False])
def test_half_precision_there_and_back(tie: bool, dtype: str, tmp_path: Path) -> None:
    config = replace(SMALL, tie_embeddings=tie)
    parity.assert_there_and_back(ELECTRA, config, "masked-lm", tmp_path, dtype)
