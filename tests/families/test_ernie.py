"""ERNIE: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from msgspec.structs import replace

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.conformance.hf_reference import reference_model
from zoo.testing.conformance import FamilyTests
from zoo_ernie import Ernie
from zoo_ernie.config import SIZES, ErnieConfig

ERNIE = Ernie()
SMALL = ErnieConfig(**SMALL_SIZES, use_task_id=True)


class TestErnie(ReferenceTests, FamilyTests):
    family = ERNIE
    golden = Path(__file__).parents[1] / "golden" / "ernie"
    base = replace(SIZES["3.0-base-zh"], vocab_size=1000, max_positions=512)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"use_task_id": False},
        {"task_type_vocab_size": 7, "type_vocab_size": 4},
        {"tie_embeddings": False},
        {"activation": "relu"},
        {"layer_norm_eps": 0.1, "num_heads": 3},
        {"labels": ("one",), "problem": "regression"},
    )
    default = ErnieConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("is_decoder", True): "is_decoder",
        ("add_cross_attention", True): "add_cross_attention",
        ("hidden_act", "prelu"): "hidden_act",
        ("task_type_vocab_size", 0): "task_type_vocab_size",
    }
    # (40,000 + 2,048 + 4 + 3) 768 + 1,536; 12 layers of 7,087,872; pooler 590,592
    counts: ClassVar[dict[tuple[str, str], int]] = {("3.0-base-zh", "none"): 117_944_832}
    variants = ({"use_task_id": False},)
    carried: ClassVar[dict[str, Any]] = {"bos_token_id": 0}


def test_gradients_equal_the_reference() -> None:
    """Only the row of task 0 has one."""
    model = parity.random_model(ERNIE, SMALL, "masked-lm")
    reference: Any = reference_model(ERNIE, SMALL, "masked-lm", model.state_dict())
    ids = torch.arange(20).reshape(2, 10) + 5
    model(ids)["logits"].square().mean().backward()
    reference.requires_grad_(True)
    reference(ids).logits.square().mean().backward()
    ours = model.get_parameter("embeddings.tasks.weight").grad
    theirs = reference.ernie.embeddings.task_type_embeddings.weight.grad
    assert ours is not None and ours[1:].abs().max() == 0 < ours[0].abs().max()
    assert (ours - theirs).abs().max() <= 1e-9
