"""SPLADE with FLOPS, against SpladeLoss of sentence-transformers, and its runs."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

import zoo
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, setup_of, write_table
from tests.tasks.sentence_embedding.making import (
    assert_equal,
    features,
    setup_and_batch,
    table,
    trained_module,
    tree_of,
    wide,
)
from tests.training.runs import records
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import ZooError
from zoo.hub.source import CheckpointDir
from zoo.tasks.sparse_embedding.train import SparseRepresentation

TASK = "sparse-embedding"
WEIGHTS = {"document_regularizer_weight": 0.03, "query_regularizer_weight": 0.05}


def tree(model: Path | str, train: Path, loss: str, **changes: Any) -> dict[str, Any]:
    return {**tree_of(model, train, loss, **changes), "task": TASK}


def library_encoder(source: Path) -> Any:
    """Return sentence-transformers' sparse encoder of a masked language model."""
    library: Any = pytest.importorskip("sentence_transformers")
    return library.SparseEncoder(str(source), device="cpu").double().train()


def loss_and_gradient(setup: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weighted loss of a batch, and the gradient of the words."""
    module = trained_module(setup)
    torch.manual_seed(0)
    sums = setup.objective.compute_loss(module, wide(batch.tensors)).sums
    weights = setup.objective.loss_weights
    parts = [sums[name] * weight / batch.counts[name] for name, weight in weights.items()]
    total = torch.stack(parts).sum()
    total.backward()  # type: ignore[no-untyped-call]
    named = dict(module.named_parameters())
    (words,) = [p for name, p in named.items() if name.endswith("embeddings.tokens.weight")]
    assert words.grad is not None
    return total.detach(), words.grad


@pytest.mark.by_default("multiple-negatives-3")
@pytest.mark.parametrize(
    ("loss", "mini"),
    [("multiple-negatives", None), ("multiple-negatives", 3), ("margin-mse", 3), ("kl-div", None)],
)
def test_the_loss_is_that_of_the_library(
    pretrained: Pretrained, tmp_path: Path, loss: str, mini: int | None
) -> None:
    losses: Any = pytest.importorskip("sentence_transformers.sparse_encoder.losses")
    model, source = pretrained("BertForMaskedLM")
    rows = [json.loads(line) for line in table(tmp_path / "t.jsonl").read_text().splitlines()]
    train = write_table(tmp_path / "s.jsonl", [{**r, "margin": k / 9} for k, r in enumerate(rows)])
    data: dict[str, Any] = {"negatives": ["other"]}
    data |= {} if loss == "multiple-negatives" else {"label": "margin"}
    arguments = {**WEIGHTS, "regularizer_warmup_ratio": 0, "mini_batch_size": mini}
    settings = {"max_steps": 1, "micro_batch_size": 8, "data": data, "task_args": arguments}
    setup, batch = setup_and_batch(finetune(tmp_path / "run", tree(model, train, loss, **settings)))
    encoder = library_encoder(source)
    kinds = {
        "multiple-negatives": losses.SparseMultipleNegativesRankingLoss,
        "margin-mse": losses.SparseMarginMSELoss,
        "kl-div": losses.SparseDistillKLDivLoss,
    }
    reference = losses.SpladeLoss(encoder, kinds[loss](encoder), **WEIGHTS)
    labels = wide(batch.tensors).get("labels")
    labels = None if labels is None else labels.squeeze(-1)
    if labels is not None and loss == "kl-div":  # scores of a text and of its negative
        labels = torch.stack([labels + 5, torch.full_like(labels, 5)], 1)
    expected = sum(reference(features(batch, 3), labels).values())
    expected.backward()
    found = loss_and_gradient(setup, batch)
    (words,) = [
        p for name, p in encoder.named_parameters() if name.endswith("word_embeddings.weight")
    ]
    assert words.grad.abs().max() > 1e-3, "a gradient to compare"
    assert_equal(found[0], expected.detach())
    assert_equal(found[1], words.grad)


@pytest.mark.long
def test_the_regularization_grows_quadratically(pretrained: Pretrained, tmp_path: Path) -> None:
    """As SpladeRegularizerWeightSchedulerCallback has it, in the first third of the steps."""
    model, _ = pretrained("BertForMaskedLM")
    train = table(tmp_path / "t.jsonl")
    run = finetune(tmp_path / "run", tree(model, train, "multiple-negatives", task_args=WEIGHTS))
    objective: Any = setup_of(run).objective
    found = []
    for step in (0, 1, 2, 3, 4, 11):
        objective.begin_step(None, step, 12)
        found.append(objective.loss_weights["document_flops"] / 0.03)
    assert found == pytest.approx([0, 1 / 16, 4 / 16, 9 / 16, 1, 1])
    names = {name for record in records(run) for name in record["losses"]}
    assert names == {TASK, "document_flops", "query_flops"}
    metrics = records(run, "validation")[-1]["metrics"]
    assert set(metrics) == {"mrr", "accuracy"}
    stored = load_checkpoint(run / "model").model.pooling
    assert stored is not None
    assert (stored.model_type, stored.output) == ("SparseEncoder", "logits")
    assert (stored.similarity_fn_name, stored.describe()) == ("dot", "SPLADE")
    library: Any = pytest.importorskip("sentence_transformers")
    convert(CheckpointDir(run / "model", "model"), tmp_path / "hub", to="hub")
    theirs = library.SparseEncoder(str(tmp_path / "hub"), device="cpu")
    expected = theirs.encode(["a b c", "j"]).to_dense()
    ours = torch.from_numpy(zoo.load(run / "model", backend="cpu").embed(["a b c", "j"]))
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    again = tree(run / "model", train, "multiple-negatives", task_args={"max_active_dims": 4})
    context = setup_of(finetune(tmp_path / "again", again)).objective.context
    pooling = SparseRepresentation().pooling(context)
    assert replace(pooling, max_active_dims=None) == stored


@pytest.mark.long
def test_an_evaluation_on_scores(pretrained: Pretrained, tmp_path: Path) -> None:
    """Has the numbers of ``zoo eval``, and the loss of CoSENT."""
    model, _ = pretrained("BertForMaskedLM")
    held = table(tmp_path / "e.jsonl", 8, seed=7)
    data = {"eval": [str(held)], "eval_score": "score"}
    settings = {"data": data, "micro_batch_size": 8, "max_steps": 2}
    settings |= {"task_args": dict.fromkeys(WEIGHTS, 0)}
    train = table(tmp_path / "t.jsonl")
    run = finetune(tmp_path / "run", tree(model, train, "multiple-negatives", **settings))
    record = records(run, "validation")[-1]
    metrics = zoo.evaluate(run / "model", task=TASK, eval=held, pair="pair", label="score").metrics
    assert record["metrics"] == pytest.approx({n: metrics[n] for n in record["metrics"]}, abs=1e-3)
    trained = zoo.load(run / "model", backend="cpu")
    rows = [json.loads(line) for line in held.read_text().splitlines()]
    first, second = (torch.tensor(trained.embed([r[n] for r in rows])) for n in ("text", "pair"))
    cosines = torch.nn.functional.cosine_similarity(first, second)
    below = [(i, j) for i in range(8) for j in range(8) if rows[i]["score"] < rows[j]["score"]]
    sums = 1 + sum(float((cosines[i] - cosines[j]).exp()) for i, j in below)
    assert record["loss"] == pytest.approx(math.log(sums), rel=1e-3)


@pytest.mark.parametrize(
    ("loss", "changes", "message"),
    [
        ("cosent", {}, "sparse-embedding has no loss cosent; it has multiple-negatives"),
        ("multiple-negatives", {"task_args": {"matryoshka": [8]}}, "not cut at leading dimen"),
        (
            "multiple-negatives",
            {"task_args": {"query_regularizer_weight": -1}},
            "query_regularizer_weight is -1.0, and has to be 0 or more",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(
    pretrained: Pretrained, tmp_path: Path, loss: str, changes: dict[str, Any], message: str
) -> None:
    model, _ = pretrained("BertForMaskedLM")
    with pytest.raises(ZooError, match=message):
        finetune(tmp_path / "run", tree(model, table(tmp_path / "t.jsonl"), loss, **changes))
    assert not (tmp_path / "run").exists()
