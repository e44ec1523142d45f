"""Matryoshka losses and mini-batches, against sentence-transformers, both in float64."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, write_table
from tests.tasks.sentence_embedding.making import (
    assert_equal,
    features,
    library_encoder,
    setup_and_batch,
    table,
    trained_module,
    tree_of,
    wide,
)
from tests.training.runs import records
from zoo.errors import ZooError
from zoo.finetuning.setup import FineTuneSetup
from zoo.objectives.base import Batch

WORDS = "embeddings.tokens.weight"
DIMS, WEIGHTS = (32, 8, 20), (1.0, 0.25, 0.5)


def library_losses() -> Any:
    return pytest.importorskip("sentence_transformers.sentence_transformer.losses")


def loss_and_gradient(setup: Any, batch: Batch, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return the mean loss of a batch in training, and the gradient of the words."""
    module = trained_module(setup)
    torch.manual_seed(seed)
    loss = setup.objective.compute_loss(module, wide(batch.tensors)).sums["sentence-embedding"]
    mean = loss / batch.counts["sentence-embedding"]
    mean.backward()
    (words,) = [p for name, p in module.named_parameters() if name.endswith(WORDS)]
    assert words.grad is not None
    return mean.detach(), words.grad


def run_of(
    pretrained: Pretrained, path: Path, loss: str, arguments: dict[str, Any], **changes: Any
) -> tuple[Any, Batch, Path]:
    """Return the setup of a run, its first micro-batch of 8 rows, and the Hub's checkpoint."""
    model, source = pretrained("BertModel", **changes)
    settings = {"max_steps": 1, "micro_batch_size": 8, "task_args": arguments}
    tree = tree_of(model, table(path / "t.jsonl"), loss, **settings)
    return *setup_and_batch(finetune(path / "run", tree)), source


def reference_of(loss: str, encoder: Any) -> nn.Module:
    losses = library_losses()
    kinds = {
        "multiple-negatives": losses.MultipleNegativesRankingLoss,
        "cosent": losses.CoSENTLoss,
        "cosine": losses.CosineSimilarityLoss,
        "triplet": losses.TripletLoss,
    }
    made: nn.Module = kinds[loss](encoder)
    return made


def compare(found: tuple[Tensor, Tensor], encoder: Any, reference: Tensor) -> None:
    """Compare a loss and its gradient with sentence-transformers."""
    reference.backward()  # type: ignore[no-untyped-call]
    words = encoder[0].auto_model.embeddings.word_embeddings.weight
    assert words.grad.abs().max() > 5e-4, "a gradient to compare"
    assert_equal(found[0], reference.detach())
    assert_equal(found[1], words.grad)


@pytest.mark.by_default("None-triplet", "weights1-multiple-negatives")
@pytest.mark.parametrize("loss", ["multiple-negatives", "cosent", "cosine", "triplet"])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_losses_are_those_of_the_library(
    pretrained: Pretrained, tmp_path: Path, loss: str, weights: Sequence[float] | None
) -> None:
    """Without Matryoshka training, and with it."""
    dims = {"matryoshka": list(DIMS), "matryoshka_weights": weights}
    setup, batch, source = run_of(pretrained, tmp_path, loss, dims if weights else {})
    encoder = library_encoder(source)
    reference = reference_of(loss, encoder)
    if weights:
        reference = library_losses().MatryoshkaLoss(encoder, reference, DIMS, weights)
    columns = 3 if loss in ("multiple-negatives", "triplet") else 2
    expected = reference(features(batch, columns), wide(batch.tensors).get("labels"))
    compare(loss_and_gradient(setup, batch), encoder, expected)


@pytest.mark.by_default("kl-div")
@pytest.mark.parametrize(
    ("loss", "label", "dims"),
    [("margin-mse", "scores", None), ("margin-mse", "margins", DIMS), ("kl-div", "scores", DIMS)],
)
def test_a_teacher_s_scores_are_learned_as_in_the_library(
    pretrained: Pretrained, tmp_path: Path, loss: str, label: str, dims: tuple[int, ...] | None
) -> None:
    """Of a text and two negatives, or their margins; with Matryoshka training and without it."""
    model, source = pretrained("BertModel")
    rows = [json.loads(line) for line in table(tmp_path / "t.jsonl").read_text().splitlines()]
    scored = [
        {**row, "third": other["text"], "scores": [k / 9, 0.5, 0.1], "margins": [k / 9, 0.2]}
        for k, (row, other) in enumerate(zip(rows, rows[::-1], strict=True))
    ]
    data = {"label": label, "negatives": ["other", "third"]}
    arguments: dict[str, Any] = {"matryoshka": dims}
    settings = {"max_steps": 1, "micro_batch_size": 8, "data": data, "task_args": arguments}
    train = write_table(tmp_path / "s.jsonl", scored)
    if loss == "kl-div":
        arguments["temperature"] = 1.5
    run = finetune(tmp_path / "run", tree_of(model, train, loss, **settings))
    setup, batch = setup_and_batch(run)
    encoder = library_encoder(source)
    reference, labels = library_losses().MarginMSELoss(encoder), batch.tensors["labels"].double()
    if loss == "kl-div":
        reference = library_losses().DistillKLDivLoss(encoder, temperature=1.5)
        labels = 2 - torch.cat([torch.zeros(8, 1), labels], 1)  # scores with these margins
    if dims is not None:
        reference = library_losses().MatryoshkaLoss(encoder, reference, dims)
    expected = reference(features(batch, 4), labels)
    compare(loss_and_gradient(setup, batch), encoder, expected)
    assert set(records(run, "validation")[-1]["metrics"]) == {"spearman", "pearson"}


@pytest.mark.long
def test_matryoshka_of_classes_reads_the_first_weights(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    """The classifier of fewer dimensions has the columns of their weights."""
    arguments = {"matryoshka": [32, 8]}
    setup, batch, _ = run_of(pretrained, tmp_path, "softmax", arguments)
    module: Any = trained_module(setup).eval()
    outputs = setup.objective.forward(module, batch.tensors)
    found = setup.objective.loss(outputs, batch.tensors).sums["sentence-embedding"]
    weight, bias = module.classifier.weight.view(-1, 3, 32), module.classifier.bias
    total = torch.zeros(())
    for dim in (32, 8):
        u, v = (nn.functional.normalize(x[:, :dim]) for x in outputs.logits["sentence-embedding"])
        parts = torch.stack([u, v, (u - v).abs()], 1)
        logits = torch.einsum("rpd,cpd->rc", parts, weight[:, :, :dim]) + bias
        total = total + nn.functional.cross_entropy(
            logits, batch.tensors["labels"], reduction="sum"
        )
    torch.testing.assert_close(found, total)


def set_mini_batch_size(setup: FineTuneSetup, size: int | None) -> None:
    """Change an option of the run."""
    context = setup.objective.context
    options = replace(context.options, mini_batch_size=size)
    setup.objective.context = dataclasses.replace(context, options=options)


@pytest.mark.by_default("None")
@pytest.mark.parametrize("matryoshka", [None, [32, 8]])
def test_mini_batches_have_the_loss_and_gradients_of_the_batch(
    pretrained: Pretrained, tmp_path: Path, matryoshka: list[int] | None
) -> None:
    """Also of ``CachedMultipleNegativesRankingLoss``."""
    arguments = {"mini_batch_size": 3, "matryoshka": matryoshka}
    setup, batch, source = run_of(pretrained, tmp_path, "multiple-negatives", arguments)
    found = loss_and_gradient(setup, batch)
    set_mini_batch_size(setup, None)
    expected = loss_and_gradient(setup, batch)
    assert_equal(found[0], expected[0])
    assert_equal(found[1], expected[1])
    encoder, losses = library_encoder(source), library_losses()
    reference = losses.CachedMultipleNegativesRankingLoss(encoder, mini_batch_size=3)
    if matryoshka is not None:
        reference = losses.MatryoshkaLoss(encoder, reference, matryoshka)
    compare(found, encoder, reference(features(batch, 3), torch.zeros(8)))


@pytest.mark.long
def test_the_second_pass_drops_what_the_first_one_did(
    pretrained: Pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a pass that keeps its activations, with the same random numbers."""
    dropout = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    arguments = {"mini_batch_size": 3}
    setup, batch, _ = run_of(pretrained, tmp_path, "multiple-negatives", arguments, **dropout)
    found = loss_and_gradient(setup, batch)
    monkeypatch.setattr(
        "zoo.finetuning.embeddings.task.checkpoint",
        lambda function, *arguments, use_reentrant: function(*arguments),
    )
    torch.testing.assert_close(found, loss_and_gradient(setup, batch), atol=1e-7, rtol=1e-6)
    other = loss_and_gradient(setup, batch, seed=1)
    assert (found[1] - other[1]).abs().max() > 1e-4, "the dropout is seen in the gradient"


@pytest.mark.long
def test_activations_of_a_mini_batch_are_kept_only(pretrained: Pretrained, tmp_path: Path) -> None:
    """Between the passes, only tensors of embeddings are kept."""
    kept = {}
    setup, batch, _ = run_of(pretrained, tmp_path, "cosent", {})
    for size in (2, None):
        set_mini_batch_size(setup, size)
        module, total = trained_module(setup), [0]

        def count(tensor: Tensor, total: list[int] = total) -> Tensor:
            total[0] += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            setup.objective.compute_loss(module, batch.tensors)
        kept[size] = total[0]
    assert kept[2] < kept[None] / 4


@pytest.mark.by_default("arguments0", "arguments4", "arguments6")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"matryoshka": [33, 8]}, "matryoshka is 33, and embeddings have 32 dimensions"),
        ({"matryoshka": []}, r"matryoshka is \[\], not different positive numbers"),
        ({"matryoshka": [8, 8]}, "not different positive numbers"),
        ({"matryoshka": [0, 8]}, "not different positive numbers"),
        ({"matryoshka_weights": [1.0]}, "matryoshka_weights has 1 numbers, not one a dimension"),
        ({"matryoshka": [32, 8], "matryoshka_weights": [1.0, -1.0]}, "not positive"),
        ({"mini_batch_size": 0}, "mini_batch_size is 0, not positive"),
        ({"scale": 0}, "scale is 0.0, not positive"),
        ({"temperature": 2}, "the loss cosent does not read temperature"),
        ({"scal": 2}, "has no option 'scal'; did you mean scale"),
        ({"scale": "x"}, r"sentence-embedding: task_args\.scale: Expected `float`, got `str`$"),
        ({"mini_batch_size": "x"}, r"task_args\.mini_batch_size: Expected `int | null`"),
    ],
)
def test_what_does_not_fit_is_one_line(
    pretrained: Pretrained, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ZooError, match=message):
        run_of(pretrained, tmp_path, "cosent", arguments)
    assert not (tmp_path / "run").exists()


def test_dimensions_without_a_loss_are_said(
    pretrained: Pretrained, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "zoo"):
        run_of(pretrained, tmp_path, "cosent", {"matryoshka": [16]})
    assert "matryoshka lacks 32, all dimensions of embeddings" in caplog.text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"negatives": ["other"]}, "margin-mse needs the scores of a teacher: name their column"),
        ({"label": "score"}, "margin-mse needs negatives: name their columns with --negative"),
        ({"label": "score", "negatives": ["other", "text"]}, "has 1 scores, and 2 negatives"),
        ({"label": "class", "negatives": ["other"]}, "which is not a number"),
        ({"label": "teacher", "negatives": ["other"]}, "has no column 'teacher'"),
    ],
)
def test_a_teacher_s_scores_that_are_missing(
    pretrained: Pretrained, tmp_path: Path, data: dict[str, Any], message: str
) -> None:
    model, _ = pretrained("BertModel")
    train = table(tmp_path / "t.jsonl")
    with pytest.raises(ZooError, match=message):
        finetune(tmp_path / "run", tree_of(model, train, "margin-mse", data=data))
    assert not (tmp_path / "run").exists()
