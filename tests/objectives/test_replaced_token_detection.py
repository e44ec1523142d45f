"""Replaced-token detection: samples, labels, losses equal to the reference library's, gradients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from msgspec.structs import replace
from torch import Tensor, nn

from tests.families.parity import random_model
from tests.objectives.apart import assert_apart
from tests.objectives.detection import ELECTRA, SMALL, WORDS, drawn_rows, make_model, objective
from tests.training.runs import run_training
from zoo.checkpoint import load_checkpoint
from zoo.conformance.hf_reference import reference_model
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.families.random_inputs import randomize_weights
from zoo.hub.source import CheckpointDir
from zoo.inference import load_session
from zoo.objectives import objective_type
from zoo.objectives.base import Batch
from zoo.objectives.replaced_token_detection import (
    REPLACED_TOKEN,
    ReplacedOptions,
    ReplacedTokenDetection,
    discriminator_loss,
    generator_config,
)
from zoo.plugins import get_family
from zoo_electra.config import SIZES

MASKED = "masked-lm"


# Sampling


def test_samples_do_not_depend_on_how_rows_are_batched() -> None:
    task = objective()
    rows, model = drawn_rows(task), make_model(task)
    seen: list[Tensor] = []
    model.discriminator.encode = _noting(model.discriminator.encode, seen)
    for batches in ([rows], [rows[:1], rows[1:4], rows[4:]], [rows]):
        for batch in batches:
            task.compute_loss(model, task.collate(batch).tensors)
    whole, *parts, again = seen
    assert torch.equal(whole, torch.cat(parts)) and torch.equal(whole, again)


def _noting(encode: Any, seen: list[Tensor]) -> Any:
    def noted(**arguments: Tensor) -> Tensor:
        seen.append(arguments["input_ids"])
        return encode(**arguments)  # type: ignore[no-any-return]

    return noted


# Rows


def test_arrays_of_a_row() -> None:
    for row in drawn_rows(objective()):
        ids, (_, positions) = row.arrays["input_ids"], row.positions["label_positions"]
        tokens = int(np.count_nonzero(row.arrays["document_ids"]))
        assert row.counts == {MASKED: len(positions), REPLACED_TOKEN: tokens}
        assert row.values["uniforms"].shape == row.values["labels"].shape == positions.shape
        differs = ids[positions] != row.values["labels"]
        assert set(ids[positions][differs].tolist()) <= {
            WORDS.special_token_id("mask")
        }  # no other tokens


def test_terms_have_the_papers_weights() -> None:
    assert objective().loss_weights == {MASKED: 1.0, REPLACED_TOKEN: 50.0}
    assert objective(discriminator_weight=10.0).loss_weights == {MASKED: 1.0, REPLACED_TOKEN: 10.0}


# Losses


def outcome_and_corrupted(task: ReplacedTokenDetection) -> tuple[Any, Any, Batch, Tensor]:
    model, batch = make_model(task), task.collate(drawn_rows(task))
    seen: list[Tensor] = []
    model.discriminator.encode = _noting(model.discriminator.encode, seen)
    outcome = task.compute_loss(model, batch.tensors)
    return outcome, model, batch, seen[0]


def test_losses_equal_the_reference() -> None:
    task = objective(generator_width_ratio=0.5)
    outcome, model, batch, corrupted = outcome_and_corrupted(task)
    tensors = batch.tensors
    labels = torch.full_like(tensors["input_ids"], -100)
    labels.view(-1)[tensors["label_positions"]] = tensors["labels"]
    real = tensors["document_ids"]
    inputs = {"attention_mask": real, "token_type_ids": torch.zeros_like(real)}
    masked = reference(task.generator_config, MASKED, model.generator)
    theirs = masked(input_ids=tensors["input_ids"], labels=labels, **inputs).loss
    mine = outcome.sums[MASKED] / batch.counts[MASKED]
    assert mine.item() == pytest.approx(theirs.item(), rel=1e-6)

    original = torch.where(labels < 0, tensors["input_ids"], labels)
    detecting = reference(SMALL, REPLACED_TOKEN, model.discriminator)
    wrong = (corrupted != original).long()
    theirs = detecting(input_ids=corrupted, labels=wrong, **inputs).loss
    mine = outcome.sums[REPLACED_TOKEN] / batch.counts[REPLACED_TOKEN]
    assert mine.item() == pytest.approx(theirs.item(), rel=1e-6)
    # a sample equal to the original has the label original; unmasked tokens are never replaced
    assert 0 < wrong.sum() < batch.counts[MASKED]
    assert not (wrong.bool() & (labels < 0)).any()
    assert outcome.metrics["replaced"] == (wrong.sum(), batch.counts[REPLACED_TOKEN])


def reference(config: Any, head: str, model: nn.Module) -> Any:
    return reference_model(ELECTRA, config, head, model.state_dict()).double().eval()


def test_metrics_by_hand() -> None:
    # labels: 1, 1, 0, 0, padding; predictions: 1, 0, 0, 1, 1
    logits = torch.tensor([[2.0, -1.0, -3.0, 4.0, 5.0]])
    is_token = torch.tensor([[True, True, True, True, False]])
    replaced = torch.tensor([[True, True, False, False, False]])
    loss = discriminator_loss(logits, replaced, is_token)
    pairs = {name: (float(a), int(b)) for name, (a, b) in loss.metrics.items()}
    probable = torch.tensor([2.0, -1.0, -3.0, 4.0]).sigmoid()
    for name, part in (("replaced", probable[:2]), ("original", probable[2:])):
        assert pairs.pop(f"probability_{name}") == pytest.approx((float(part.sum()), 2))
    assert pairs == {
        "accuracy": (2, 4),
        "accuracy_replaced": (1, 2),
        "accuracy_original": (1, 2),
        "area_under_curve": (2, 4),  # 2 > -3 and -1 > -3; 4 is above both
        "replaced": (2, 4),
    }
    by_hand = np.log1p(np.exp([-2.0, 1.0, -3.0, 4.0])).sum()
    assert loss.sums[REPLACED_TOKEN].item() == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize("head", [MASKED, REPLACED_TOKEN])
def test_texts_of_a_row_do_not_see_each_other(head: str) -> None:
    assert_apart(random_model(ELECTRA, SMALL, head), 200, positions=head == REPLACED_TOKEN)


# Gradients


def gradients(task: ReplacedTokenDetection, term: str) -> dict[str, Tensor | None]:
    model = make_model(task)
    loss = task.compute_loss(model, task.collate(drawn_rows(task)).tensors).sums[term]
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("sharing", ["tied", "gradient-disentangled", "none"])
def test_detection_has_gradients_to_shared_embeddings_alone(sharing: str) -> None:
    grads = gradients(objective(embedding_sharing=sharing), REPLACED_TOKEN)
    reached = {n for n, g in grads.items() if n.startswith("generator.") and g is not None}
    shared = {f"generator.embeddings.{n}.weight" for n in ("tokens", "positions", "types", "norm")}
    shared |= {"generator.embeddings.norm.bias"}
    assert reached == (shared if sharing == "tied" else set())
    assert [n for n, g in grads.items() if n.startswith("discriminator.") and g is None] == []


@pytest.mark.parametrize("sharing", ["tied", "gradient-disentangled", "none"])
def test_masked_tokens_teach_the_discriminator_nothing(sharing: str) -> None:
    grads = gradients(objective(embedding_sharing=sharing), MASKED)
    assert [n for n, g in grads.items() if n.startswith("discriminator.") and g is not None] == []


def test_residuals_start_at_zero_and_are_summed_in_the_end() -> None:
    task = objective(embedding_sharing="gradient-disentangled")
    model = make_model(task)
    source, target = model.generator.embeddings, model.discriminator.embeddings
    assert not target.tokens.delta.any()
    randomize_weights(target.tokens)
    ids = torch.arange(SMALL.vocab_size)
    summed = source.tokens.weight + target.tokens.delta
    assert torch.equal(target.tokens(ids), summed)
    result = task.models_to_save(model)["model"].module
    restored: Any = ELECTRA.model(SMALL, REPLACED_TOKEN).double()
    restored.load_state_dict(result.state_dict())
    assert torch.equal(restored.embeddings.tokens.weight, summed)
    row = {"input_ids": ids[None, :20]}
    assert torch.equal(restored(**row)["logits"], model.discriminator(**row)["logits"])
    assert target.tokens is model.discriminator.embeddings.tokens  # unchanged


# The generator


@pytest.mark.parametrize(
    ("size", "part", "width", "heads"), [("small", 1 / 4, 64, 1), ("base", 1 / 3, 256, 4)]
)
def test_generators_are_those_of_the_released_code(
    size: str, part: float, width: int, heads: int
) -> None:
    generator = generator_config(SIZES[size], ReplacedOptions(generator_width_ratio=part))
    changes = {"hidden_size": width, "num_heads": heads, "intermediate_size": 4 * width}
    assert generator == replace(SIZES[size], **changes)


def test_published_generators_follow_from_their_discriminators() -> None:
    for size, part in (("small", 1.0), ("base", 1 / 3), ("large", 1 / 4)):
        generator = generator_config(SIZES[size], ReplacedOptions(generator_width_ratio=part))
        assert generator == SIZES[f"{size}-generator"]


def test_unsupported_objectives_have_a_reason() -> None:
    with pytest.raises(UsageError, match="bert has no head 'replaced-token-detection'"):
        objective_type(get_family("bert"), None, REPLACED_TOKEN)
    with pytest.raises(UsageError, match="gpt has no head 'masked-lm' for a generator"):
        objective_type(get_family("gpt"), None, REPLACED_TOKEN)
    with pytest.raises(UsageError, match="does not split into num_heads"):
        objective(replace(SMALL, hidden_size=400), generator_width_ratio=0.5)
    deberta = get_family("deberta").sizes()["tiny"]
    with pytest.raises(UsageError, match="embeddings of a generator that is 32 wide"):
        objective(deberta)


# Runs


@pytest.mark.long
def test_a_run_leaves_two_networks_that_the_reference_loads(tmp_path: Path) -> None:
    run = run_training(tmp_path / "run", "electra", max_steps=4)
    ids = torch.arange(5, 25)[None]
    kinds: dict[str, Any] = {
        "model": transformers.ElectraForPreTraining,
        "generator": transformers.ElectraForMaskedLM,
    }
    tables = []
    for name, kind in kinds.items():
        ours, hub = run / name, tmp_path / f"hub-{name}"
        convert(CheckpointDir(ours, str(ours)), hub, to="hub")
        loaded, loading = kind.from_pretrained(hub, output_loading_info=True)
        assert {key: value for key, value in loading.items() if value} == {}
        with torch.no_grad():
            theirs = loaded.eval()(ids).logits
            mine = zoo_logits(ours, ids)
        assert (mine - theirs).abs().max() <= 1e-5 * theirs.abs().max()
        tables.append(loaded.electra.embeddings.word_embeddings.weight)
    assert torch.equal(*tables)  # tied weights


def zoo_logits(path: Path, ids: Tensor) -> Tensor:
    outputs = load_session(load_checkpoint(path), device="cpu").run({"input_ids": ids.numpy()})
    return torch.from_numpy(outputs["logits"])
