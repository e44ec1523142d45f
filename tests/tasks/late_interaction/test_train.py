"""MaxSim, against the losses of MultiVectorEncoder of sentence-transformers, and its runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, setup_of, write_table
from tests.inference.conftest import converted
from tests.tasks.sentence_embedding.test_train import table, tree_of
from tests.tasks.sentence_embedding.test_training_losses import (
    features,
    setup_and_batch,
    trained_module,
)
from tests.training.runs import records
from zoo.checkpoint import load_checkpoint
from zoo.errors import ZooError

TASK = "late-interaction"
TOKENS = "token_embeddings"


def tree(model: Path | str, train: Path, loss: str, **changes: Any) -> dict[str, Any]:
    return {**tree_of(model, train, loss, **changes), "task": TASK}


def library_encoder(source: Path) -> Any:
    """Return a model of the library, with a projection and two words that are not compared."""
    library: Any = pytest.importorskip("sentence_transformers")
    base: Any = pytest.importorskip("sentence_transformers.base.modules")
    masks: Any = pytest.importorskip("sentence_transformers.multi_vector_encoder.modules")
    torch.manual_seed(3)
    identity = torch.nn.Identity()
    dense = base.Dense(32, 8, bias=False, activation_function=identity, module_input_name=TOKENS)
    mask = masks.MultiVectorMask(skiplist_words=["c", "nothing"])
    scaled = base.Normalize(module_input_name=TOKENS)
    modules = [base.Transformer(str(source)), dense, mask, scaled]
    return library.MultiVectorEncoder(modules=modules, device="cpu")


@pytest.mark.parametrize("mini", [None, 3])
@pytest.mark.parametrize("loss", ["multiple-negatives", "margin-mse"])
def test_the_loss_is_that_of_the_library(
    pretrained: Pretrained, tmp_path: Path, loss: str, mini: int | None
) -> None:
    """Of a model that is converted, with its projection and tokens that are left out."""
    losses: Any = pytest.importorskip("sentence_transformers.multi_vector_encoder.losses")
    _, source = pretrained("BertModel")
    encoder = library_encoder(source)
    encoder.save(str(tmp_path / "hub"), create_model_card=False)
    model = converted(tmp_path / "hub", tmp_path / "late").path
    rows = [json.loads(line) for line in table(tmp_path / "t.jsonl").read_text().splitlines()]
    train = write_table(tmp_path / "s.jsonl", [{**r, "margin": k / 9} for k, r in enumerate(rows)])
    data = {"negatives": ["other"], **({"label": "margin"} if loss == "margin-mse" else {})}
    arguments = {"mini_batch_size": mini}
    settings = {"max_steps": 1, "micro_batch_size": 8, "data": data, "task_args": arguments}
    setup, batch = setup_and_batch(finetune(tmp_path / "run", tree(model, train, loss, **settings)))
    kinds = {
        "multiple-negatives": losses.MultiVectorMultipleNegativesRankingLoss,
        "margin-mse": losses.MultiVectorMarginMSELoss,
    }
    labels = batch.tensors.get("labels")
    labels = None if labels is None else labels.squeeze(-1)
    expected = kinds[loss](encoder.train())(features(batch, 3), labels)
    expected.backward()
    module = trained_module(setup)
    sums = setup.objective.compute_loss(module, batch.tensors).sums
    mean = sums[TASK] / batch.counts[TASK]
    mean.backward()
    scale = max(1.0, float(expected))
    torch.testing.assert_close(mean, expected, atol=1e-6 * scale, rtol=1e-6)
    pairs = [("embeddings.tokens.weight", "word_embeddings.weight"), ("linear.weight",) * 2]
    for mine, theirs in pairs:
        (ours,) = [p.grad for name, p in module.named_parameters() if name.endswith(mine)]
        (known,) = [p.grad for name, p in encoder.named_parameters() if name.endswith(theirs)]
        assert ours is not None and known.abs().max() > 1e-3
        # errors of the loss and of its gradients grow with the loss
        error = 1e-6 * max(scale, float(known.abs().max()))
        torch.testing.assert_close(ours, known, atol=2 * error, rtol=1e-5)


def test_a_new_projection_is_learned_and_kept(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained("BertModel")
    train = table(tmp_path / "t.jsonl")
    arguments = {"dimension": 8, "query_length": 6}
    run = finetune(tmp_path / "run", tree(model, train, "multiple-negatives", task_args=arguments))
    losses = [record["loss"] for record in records(run)]
    assert losses[-1] < losses[0]
    assert set(records(run, "validation")[-1]["metrics"]) == {"mrr", "accuracy"}
    checkpoint = load_checkpoint(run / "model")
    stored = checkpoint.model.pooling
    assert stored is not None
    assert (stored.model_type, stored.similarity_fn_name) == ("MultiVectorEncoder", "maxsim")
    assert (stored.query_length, stored.describe()) == (6, "dense 8, normalized")
    assert checkpoint.module_weights()["1_Dense"]["linear.weight"].shape == (8, 32)
    rows = setup_of(run).train_rows
    assert max(rows.starts[1:] - rows.starts[:-1]) == 6
    again = finetune(tmp_path / "again", tree(run / "model", train, "multiple-negatives"))
    assert load_checkpoint(again / "model").model.pooling == stored


@pytest.mark.parametrize(
    ("loss", "arguments", "message"),
    [
        ("cosent", {}, "late-interaction has no loss cosent; it has multiple-negatives"),
        ("multiple-negatives", {"matryoshka": [8]}, "vectors of tokens are not cut"),
        ("multiple-negatives", {"dimension": 0}, "dimension is 0, not positive"),
        (
            "multiple-negatives",
            {"query_expansion": {"strategy": "fixed", "length": 8}},
            "models that expand queries by mask tokens are not trained",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(
    pretrained: Pretrained, tmp_path: Path, loss: str, arguments: dict[str, Any], message: str
) -> None:
    model, _ = pretrained("BertModel")
    train = table(tmp_path / "t.jsonl")
    with pytest.raises(ZooError, match=message):
        finetune(tmp_path / "run", tree(model, train, loss, task_args=arguments))
    assert not (tmp_path / "run").exists()
