"""BigBird-Pegasus: the conformance kit, and equality with the reference library."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace

from tests.families import parity
from tests.families.making import SEQ2SEQ_SHAPE
from zoo.adapted_models.targets import AdaptableModel
from zoo.checkpoint.generation_config import GenerationConfig
from zoo.conformance.hf_reference import reference_model
from zoo.inference.generation.generate import generate
from zoo.testing.conformance import FamilyTests
from zoo_bigbird_pegasus import BigBirdPegasus
from zoo_bigbird_pegasus.config import SIZES, BigBirdPegasusConfig

FAMILY = BigBirdPegasus()
# Sources of more than 36 tokens have block-sparse attention.
SMALL = BigBirdPegasusConfig(
    **SEQ2SEQ_SHAPE, block_size=4, num_random_blocks=2, dropout=0.0, attention_dropout=0.0
)


class TestBigBirdPegasus(FamilyTests):
    family = FAMILY
    golden = Path(__file__).parents[1] / "golden" / "bigbird_pegasus"


@pytest.mark.parametrize(
    ("head", "changes"),
    [
        ("seq2seq-lm", {}),
        ("seq2seq-lm", {"use_bias": True, "scale_embedding": False}),
        ("seq2seq-lm", {"tie_embeddings": False, "block_size": 2, "num_random_blocks": 1}),
        ("none", {"attention_type": "original_full", "activation": "relu"}),
        ("sequence-classification", {"block_size": 1, "num_layers": 1}),
        ("question-answering", {"num_heads": 4, "hidden_size": 40}),
    ],
    ids=str,
)
def test_small_models_equal_the_reference(head: str, changes: dict[str, Any]) -> None:
    parity.assert_equal(FAMILY, replace(SMALL, **changes), head)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("tokens", [pytest.param(36, marks=pytest.mark.long), 37, 61])
def test_outputs_and_gradients_equal_the_reference(tokens: int, training: bool) -> None:
    model = parity.random_model(FAMILY, SMALL, "seq2seq-lm").train(training)
    reference: Any = reference_model(FAMILY, SMALL, "seq2seq-lm", model.state_dict())
    reference.train(training).requires_grad_(True)
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.randint(3, SMALL.vocab_size, (2, tokens), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, tokens - tokens // 3 :] = 0
    target = torch.randint(3, SMALL.vocab_size, (2, 7), generator=generator)
    logits = model(ids, mask, decoder_input_ids=target)["logits"]
    expected = reference(input_ids=ids, attention_mask=mask, decoder_input_ids=target).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-9)
    logits.square().mean().backward()
    expected.square().mean().backward()
    attention = reference.model.encoder.layers[0].self_attn.self
    theirs = [part.weight.grad for part in (attention.query, attention.key, attention.value)]
    ours = model.get_parameter("layers.0.attention.qkv.weight").grad
    assert ours is not None
    torch.testing.assert_close(ours, torch.cat(theirs), rtol=0, atol=1e-9)


@pytest.mark.by_default("seq2seq-lm-float16")
@pytest.mark.parametrize(
    ("head", "dtype"),
    [
        ("none", "float32"),
        ("seq2seq-lm", "float16"),
        ("sequence-classification", "float32"),
        ("question-answering", "bfloat16"),
    ],
)
def test_hub_round_trip(head: str, dtype: str, tmp_path: Path) -> None:
    parity.assert_there_and_back(FAMILY, SMALL, head, tmp_path, dtype)


def test_keys_of_the_reference_are_known() -> None:
    translated = FAMILY.from_hub(transformers.BigBirdPegasusConfig().to_dict())
    assert translated.unknown == ()
    assert translated.config == BigBirdPegasusConfig()


def test_parameters_of_the_published_size() -> None:
    # (96,103 + 2 x 4,096) 1,024; 16 layers of 12,592,128 and 16 of 16,788,480; two norms; the bias
    # of the logits
    assert parity.count(FAMILY, SIZES["large"], "none") == 576_891_904
    assert FAMILY.weights(SIZES["large"], "seq2seq-lm").parameters() == 576_988_007


@pytest.mark.parametrize("tokens", [20, 50])
def test_generated_tokens_are_those_of_the_reference(tokens: int) -> None:
    """The reference generates without a cache, this project with one."""
    model: Any = parity.random_model(FAMILY, SMALL, "seq2seq-lm")
    reference: Any = reference_model(FAMILY, SMALL, "seq2seq-lm", model.state_dict())
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.randint(3, SMALL.vocab_size, (2, tokens), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, tokens - 5 :] = 0
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "num_beams": 1}
    written = reference.generate(ids, attention_mask=mask, use_cache=False, **settings)
    inputs = {"input_ids": ids, "attention_mask": mask}
    results = generate(model, inputs, GenerationConfig(max_new_tokens=12), eos_token_ids=[])
    assert results == written[:, 1:].tolist()


def test_adapters_change_both_stacks_by_default() -> None:
    model = FAMILY.model(SMALL, "seq2seq-lm")
    adaptable = AdaptableModel.from_model(model, FAMILY, SMALL, "seq2seq-lm")
    targets = adaptable.select(None, adaptable.targets.low_rank)
    modules = {site.module for site in adaptable.find_sites(targets)}
    attention = {f"layers.{number}.attention.qkv" for number in range(SMALL.num_layers)}
    for number in range(SMALL.decoder_layers):
        layer = f"decoder.layers.{number}"
        attention.update((f"{layer}.attention.qkv", f"{layer}.cross.q", f"{layer}.cross.kv"))
    assert modules == attention
