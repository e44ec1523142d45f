"""BigBird: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from msgspec.structs import replace

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.conformance.hf_reference import reference_model
from zoo.testing.conformance import FamilyTests
from zoo_bigbird import BigBird
from zoo_bigbird.config import SIZES, BigBirdConfig

BIGBIRD = BigBird()
# Rows of more than 14 tokens have block-sparse attention.
SMALL = BigBirdConfig(**SMALL_SIZES, sep_token_id=66, block_size=2, num_random_blocks=1)
# Rows of more than 36 tokens have it, and two blocks of each head are random.
BLOCKS = replace(
    SMALL, max_positions=80, block_size=4, num_random_blocks=2, dropout=0.0, attention_dropout=0.0
)


class TestBigBird(ReferenceTests, FamilyTests):
    family = BIGBIRD
    golden = Path(__file__).parents[1] / "golden" / "bigbird"
    base = replace(SIZES["base"], vocab_size=1000, max_positions=1024)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"attention_type": "original_full"},
        {"use_bias": False, "scale_embedding": True},
        {"tie_embeddings": False, "type_vocab_size": 4, "num_random_blocks": 2},
        {"activation": "relu", "block_size": 1},
        {"layer_norm_eps": 0.1, "num_heads": 2, "block_size": 3, "max_positions": 42},
        {"labels": ("one",), "problem": "regression"},
    )
    default = BigBirdConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("is_decoder", True): "is_decoder",
        ("add_cross_attention", True): "add_cross_attention",
        ("attention_type", "sliding"): "attention_type",
        ("num_random_blocks", 0): "num_random_blocks",
        ("block_size", 0): "block_size",
    }
    # (50,358 + 4,096 + 2) 768 + 1,536; 12 layers of 7,087,872; 590,592; 642,486; 1,538
    counts: ClassVar[dict[tuple[str, str], int]] = {("base", "pretraining"): 128_112_824}
    variants = ({"use_bias": False}, {"attention_type": "original_full"}, {"pooler": False})
    carried: ClassVar[dict[str, Any]] = {"eos_token_id": 3}


def batch(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two rows, the second one padded, and their mask."""
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.randint(1, BLOCKS.vocab_size, (2, tokens), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, tokens - tokens // 3 :] = 0
    return ids, mask


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("tokens", [1, 36, 37, 40, 61])
def test_outputs_and_gradients_equal_the_reference(tokens: int, training: bool) -> None:
    model = parity.random_model(BIGBIRD, BLOCKS, "masked-lm").train(training)
    reference: Any = reference_model(BIGBIRD, BLOCKS, "masked-lm", model.state_dict())
    reference.train(training).requires_grad_(True)
    ids, mask = batch(tokens)
    logits = model(ids, mask)["logits"]
    expected = reference(ids, mask).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-9)
    logits.square().mean().backward()
    expected.square().mean().backward()
    attention = reference.bert.encoder.layer[0].attention.self
    theirs = [part.weight.grad for part in (attention.query, attention.key, attention.value)]
    ours = model.get_parameter("layers.0.attention.qkv.weight").grad
    assert ours is not None
    torch.testing.assert_close(ours, torch.cat(theirs), rtol=0, atol=1e-9)
