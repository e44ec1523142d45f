"""DeBERTa's objectives: packed texts, the enhanced decoder, and the discriminator's embeddings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from tests.families.deberta.versions import FIRST as SMALL
from tests.families.parity import random_model
from tests.objectives.apart import assert_apart
from tests.objectives.words import vocabulary
from tests.training.runs import run_training
from zoo.checkpoint import load_checkpoint
from zoo.conformance.hf_reference import reference_model
from zoo.data.rng import generator
from zoo.objectives.examples.packing import pack, without_special_tokens
from zoo.objectives.masked import MaskedLanguageModelling
from zoo.objectives.options import parse_options
from zoo.objectives.replaced_token_detection import (
    REPLACED_TOKEN,
    ReplacedTokenDetection,
    generator_config,
)
from zoo.plugins import get_family
from zoo_deberta.config import SIZES, DebertaConfig

DEBERTA = get_family("deberta")
VOCABULARY = 120
FIRST = replace(
    SMALL,
    vocab_size=VOCABULARY,
    num_layers=2,
    dropout=0.0,
    attention_dropout=0.0,
    enhanced_decoder=True,
)
LATER: dict[str, Any] = {
    "key_bias": True,
    "position_buckets": 8,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}
SHAPES = {
    "first": FIRST,
    "third": replace(FIRST, **LATER),
    "convolution": replace(FIRST, **LATER, conv_kernel_size=3, conv_activation="gelu"),
    "groups": replace(FIRST, **LATER, conv_kernel_size=5, conv_groups=4),
    "biased-input": replace(FIRST, **LATER, position_biased_input=True),
    "no-decoder": replace(FIRST, enhanced_decoder=False),
}
ROLES = {"pad": "[PAD]", "mask": "[MASK]", "unk": "[UNK]"}
WORDS = vocabulary(roles=ROLES, sentinels=0, words=[f"w{n}" for n in range(100)], size=VOCABULARY)


@pytest.mark.parametrize("head", ["masked-lm", REPLACED_TOKEN])
@pytest.mark.parametrize("shape", SHAPES)
def test_texts_of_a_row_do_not_see_each_other(shape: str, head: str) -> None:
    model = random_model(DEBERTA, SHAPES[shape], head)
    assert_apart(model, VOCABULARY, positions=head == REPLACED_TOKEN)


def test_gradients_of_texts_that_share_a_row() -> None:
    """Gradients are equal, too; without gradients, attention uses another implementation."""
    model: Any = random_model(DEBERTA, SHAPES["third"], "masked-lm")
    texts = [np.arange(3, 12), np.arange(20, 25)]
    packed = pack([without_special_tokens(text) for text in texts], length=16, pad=0)
    row = {k: torch.from_numpy(v)[None] for k, v in packed.arrays(token_types=False).items()}
    real = packed.document_ids > 0
    model.scores(model.encode(**row))[0][real].square().sum().backward()
    together = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    for text in texts:
        model(torch.from_numpy(text)[None])["logits"].square().sum().backward()
    for name, parameter in model.named_parameters():
        difference = (parameter.grad - together[name]).abs().max()
        assert difference <= 1e-11 * max(1.0, float(parameter.grad.abs().max())), name


def test_masked_tokens_are_decoded_at_their_places_alone() -> None:
    config = SHAPES["third"]
    task = MaskedLanguageModelling(WORDS, config, 16)
    model: Any = random_model(DEBERTA, config, "masked-lm")
    row = task.mask_row(
        pack([without_special_tokens(np.arange(3, 19))], length=16, pad=0), generator(0, "m")
    )
    tensors = task.collate([row]).tensors
    outcome = task.compute_loss(model, tensors)
    logits = model(tensors["input_ids"])["logits"].flatten(0, 1)[tensors["label_positions"]]
    by_hand = torch.nn.functional.cross_entropy(logits, tensors["labels"], reduction="sum")
    assert model.positions is not None, "the enhanced decoder"
    assert outcome.sums["masked-lm"].item() == pytest.approx(by_hand.item(), rel=1e-6)


def test_masked_loss_equals_the_reference_where_it_computes_the_same() -> None:
    config = SHAPES["no-decoder"]
    task = MaskedLanguageModelling(WORDS, config, 16)
    model = random_model(DEBERTA, config, "masked-lm")
    row = task.mask_row(
        pack([without_special_tokens(np.arange(3, 17))], length=16, pad=0), generator(0, "m")
    )
    batch = task.collate([row])
    tensors = batch.tensors
    labels = torch.full_like(tensors["input_ids"], -100)
    labels.view(-1)[tensors["label_positions"]] = tensors["labels"]
    reference: Any = reference_model(DEBERTA, config, "masked-lm", model.state_dict())
    inputs = {"input_ids": tensors["input_ids"], "attention_mask": tensors["document_ids"]}
    theirs = reference(**inputs, labels=labels).loss
    mine = task.compute_loss(model, tensors).sums["masked-lm"] / batch.counts["masked-lm"]
    assert mine.item() == pytest.approx(theirs.item(), rel=1e-6)


def detection(config: DebertaConfig, **changes: Any) -> ReplacedTokenDetection:
    options = {**DEBERTA.recipe("tiny").objective_args, **changes}
    read = parse_options(ReplacedTokenDetection.options_type, options, REPLACED_TOKEN)
    return ReplacedTokenDetection(WORDS, config, 16, read)


@pytest.mark.parametrize("term", ["masked-lm", REPLACED_TOKEN])
def test_the_discriminator_has_no_gradient_to_the_generators_embeddings(term: str) -> None:
    task = detection(SHAPES["third"])
    torch.manual_seed(0)
    pair: Any = task.model(DEBERTA, task.config)
    row = task.mask_row(
        pack([without_special_tokens(np.arange(3, 19))], length=16, pad=0), generator(0, "m")
    )
    task.compute_loss(pair, task.collate([row]).tensors).sums[term].backward()  # type: ignore[no-untyped-call]
    reached = {name for name, p in pair.named_parameters() if p.grad is not None}
    assert ("generator.embeddings.tokens.weight" in reached) == (term == "masked-lm")
    assert ("discriminator.embeddings.tokens.delta" in reached) == (term == REPLACED_TOKEN)
    (part,) = {name.partition(".")[0] for name in reached}
    assert part == ("generator" if term == "masked-lm" else "discriminator")


@pytest.mark.parametrize(
    ("size", "layers"), [("v3-xsmall", 6), ("v3-small", 3), ("v3-base", 6), ("v3-large", 12)]
)
def test_generators_are_those_of_the_released_configurations(size: str, layers: int) -> None:
    """Same width as the discriminator, half the layers: experiments/language_model/rtd_*.json."""
    options = parse_options(
        ReplacedTokenDetection.options_type, DEBERTA.recipe(size).objective_args, REPLACED_TOKEN
    )
    generator = generator_config(SIZES[size], options)  # type: ignore[arg-type]
    assert generator == replace(SIZES[size], num_layers=layers)


def test_every_size_has_a_recipe() -> None:
    for size in DEBERTA.sizes():
        objective = DEBERTA.recipe(size).objective
        assert objective == (REPLACED_TOKEN if size == "tiny" or "v3" in size else "masked-lm")


@pytest.mark.long
def test_a_run_leaves_a_discriminator_with_summed_embeddings(tmp_path: Path) -> None:
    run = run_training(tmp_path / "run", "deberta", max_steps=3)
    model, made = (load_checkpoint(run / name) for name in ("model", "generator"))
    assert (model.model.head, made.model.head) == (REPLACED_TOKEN, "masked-lm")
    from safetensors.torch import load_file

    state = run / "checkpoints" / "step-00000003"
    weights = load_file(next(state.glob("weights*")))
    tables = [load_file(run / name / "model.safetensors") for name in ("model", "generator")]
    tokens = [table["embeddings.tokens.weight"] for table in tables]
    delta = weights["discriminator.embeddings.tokens.delta"]
    assert delta.any()
    assert torch.equal(tokens[0], tokens[1] + delta)
