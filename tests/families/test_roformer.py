"""RoFormer: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from msgspec.structs import replace

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.conformance.hf_reference import reference_model
from zoo.testing.conformance import FamilyTests
from zoo_roformer import RoFormer
from zoo_roformer.config import SIZES, RoFormerConfig

ROFORMER = RoFormer()
SMALL = RoFormerConfig(**SMALL_SIZES, embedding_size=48)


class TestRoFormer(ReferenceTests, FamilyTests):
    family = ROFORMER
    golden = Path(__file__).parents[1] / "golden" / "roformer"
    base = replace(SIZES["chinese-base"], vocab_size=1000, max_positions=512)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"rotary_value": True},
        {"embedding_size": 24},
        {"tie_embeddings": False, "type_vocab_size": 4},
        {"activation": "relu"},
        {"layer_norm_eps": 0.1, "num_heads": 2},
        {"labels": ("one",), "problem": "regression"},
    )
    default = RoFormerConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("is_decoder", True): "is_decoder",
        ("add_cross_attention", True): "add_cross_attention",
        ("hidden_act", "prelu"): "hidden_act",
        ("num_attention_heads", 256): "width of 3",
    }
    # (50,000 + 2) 768 + 1,536; 12 layers of 7,087,872
    counts: ClassVar[dict[tuple[str, str], int]] = {("chinese-base", "none"): 123_457_536}
    variants = ({"rotary_value": True}, {"embedding_size": 24})
    carried: ClassVar[dict[str, Any]] = {"eos_token_id": 3}


def test_embeddings_are_as_wide_as_blocks_unless_a_file_says_so() -> None:
    config: Any = ROFORMER.from_hub({"model_type": "roformer", "hidden_size": 96}).config
    assert config.embedding_size == 96
    config = ROFORMER.from_hub({"model_type": "roformer", "embedding_size": None}).config
    assert config.embedding_size == 768


def test_gradients_of_rotated_values_equal_the_reference() -> None:
    config = replace(SMALL, rotary_value=True)
    model = parity.random_model(ROFORMER, config, "masked-lm")
    reference: Any = reference_model(ROFORMER, config, "masked-lm", model.state_dict())
    ids = torch.arange(20).reshape(2, 10) + 5
    model(ids)["logits"].square().mean().backward()
    reference.requires_grad_(True)
    reference(ids).logits.square().mean().backward()
    ours = model.get_parameter("layers.0.attention.qkv.weight").grad
    layer = reference.roformer.encoder.layer[0].attention.self
    maps = (layer.query, layer.key, layer.value)
    theirs = torch.cat([linear.weight.grad for linear in maps])
    assert ours is not None
    assert (ours - theirs).abs().max() <= 1e-9


def test_the_table_follows_the_formula_of_the_paper() -> None:
    rules = ROFORMER.weights(SMALL, "none")
    (table,) = rules.constants
    values = torch.from_numpy(table.values())
    positions = torch.arange(SMALL.max_positions, dtype=torch.float64)[:, None]
    angles = positions * 10_000 ** (-torch.arange(0, 12, 2, dtype=torch.float64) / 12)
    expected = torch.cat((angles.sin(), angles.cos()), dim=1)
    assert (values - expected).abs().max() <= 1e-6
