"""T-Few's losses (arXiv:2205.05638) against its released code, written again over transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.finetuning.making import HERE, finetune, setup_of, training_losses, write_table
from tests.tasks.seq2seq.making import model, sentences, t5_hub, tree_of
from tests.training.runs import records
from zoo.errors import UsageError
from zoo.training.optim.lr_scheduler import lr_multiplier

__all__ = ["model", "t5_hub"]
CHOICES = ("cat", "a dog", "the house on the road")


def table(path: Path, count: int = 24) -> Path:
    rows = [{"in": t, "out": CHOICES[len(t) % 3]} for t in sentences(count)]
    return write_table(path, rows)


def released_losses(reference: Any, tensors: Any, choices: Tensor, labels: Tensor) -> Any:
    """Return the three losses of a batch, each a mean, and how many each is a mean of."""
    rows, count = len(labels), len(choices)
    flat = choices.repeat(rows, 1)
    mask = tensors.get("attention_mask", torch.ones_like(tensors["input_ids"]))
    source = reference.encoder(input_ids=tensors["input_ids"], attention_mask=mask)[0]
    begin = torch.zeros_like(flat[:, :1])
    logits = reference(
        attention_mask=mask.repeat_interleave(count, 0),
        encoder_outputs=[source.repeat_interleave(count, 0)],
        decoder_input_ids=torch.cat([begin, flat[:, :-1].clamp(min=0)], 1),
    ).logits
    each = F.cross_entropy(
        logits.flatten(0, 1), flat.flatten(), reduction="none", ignore_index=-100
    )
    each = each.view(rows, count, -1)
    every = torch.arange(rows)
    lengths = (choices != -100).sum(-1)
    likelihood = each[every, labels].sum() / lengths[labels].sum()
    compared = F.cross_entropy(-each.sum(-1) / lengths, labels)
    wrong = -each + (flat < 0).view(rows, count, -1) * -100
    wrong[every, labels] = -100
    unlikely = -torch.log(1 - torch.exp(wrong) + 1e-2).sum() / (wrong != -100).sum()
    # the constant of tokens that do not count is in the sum of the released code
    left_out = (wrong == -100).sum() * -torch.log(torch.tensor(1.01))
    unlikely = unlikely - left_out / (wrong != -100).sum()
    counts = (int(lengths[labels].sum()), rows, int((wrong != -100).sum()))
    return (likelihood, compared, unlikely), counts


def test_losses_equal_the_released_code(t5_hub: Path, model: Path, tmp_path: Path) -> None:
    """Of each step, over the micro-batches of the run."""
    import transformers

    factors = {"mc_loss": 0.5, "unlikely_loss": 2.0}
    tree = tree_of(model, table(tmp_path / "t.tsv"), task_args=factors, max_steps=4, eval_steps=4)
    run = finetune(tmp_path / "run", {**tree, "optimizer": {"learning_rate": 0.02}})
    setup = setup_of(run)
    choices = setup.objective.context.fitted
    reference: Any = transformers.T5ForConditionalGeneration.from_pretrained(t5_hub)
    optimizer = torch.optim.AdamW(reference.parameters(), lr=0.02, weight_decay=0.0)
    loader, losses = setup.train_dataloader(HERE), []
    weights = (1.0, 0.5, 2.0)
    for step in range(4):
        rate = lr_multiplier(setup.config.lr_scheduler, step, 4)
        optimizer.param_groups[0]["lr"] = 0.02 * rate
        sums, counts = [torch.zeros(())] * 3, [0, 0, 0]
        for batch in loader.make_batches(step):
            chosen = batch.tensors["choice"]
            means, parts = released_losses(reference, batch.tensors, choices.labels, chosen)
            sums = [total + mean * n for total, mean, n in zip(sums, means, parts, strict=True)]
            counts = [before + n for before, n in zip(counts, parts, strict=True)]
        loss = torch.stack(
            [w * total / n for w, total, n in zip(weights, sums, counts, strict=True)]
        ).sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        optimizer.step()
    loader.close()
    assert training_losses(run) == pytest.approx(losses, abs=2e-5)
    assert losses[-1] != pytest.approx(losses[0], abs=1e-2), "the weights changed"
    assert {"length_normalized", "unlikelihood"} < set(records(run, "validation")[-1]["losses"])


def test_targets_that_are_not_choices_do_not_count(model: Path, tmp_path: Path) -> None:
    held = write_table(tmp_path / "e.tsv", [{"in": t, "out": "tree"} for t in sentences(4, 1)])
    tree = tree_of(
        model,
        table(tmp_path / "t.tsv"),
        data={"eval": [str(held)]},
        task_args={"mc_loss": 1.0},
        adapter={"method": "ia3"},
        max_steps=2,
        eval_steps=2,
    )
    setup = setup_of(finetune(tmp_path / "run", tree))
    assert setup.train_rows.counts["length_normalized"].tolist() == [1] * len(setup.train_rows)


def test_many_targets_are_refused(model: Path, tmp_path: Path) -> None:
    rows = [{"in": text, "out": text} for text in sentences(80)]
    many = write_table(tmp_path / "t.tsv", rows)
    with pytest.raises(UsageError, match="distinct targets of 1 data sets"):
        finetune(tmp_path / "run", tree_of(model, many, task_args={"mc_loss": 1.0}))
    with pytest.raises(UsageError, match="unlikely_loss is -1"):
        finetune(tmp_path / "run", tree_of(model, many, task_args={"unlikely_loss": -1.0}))
    assert not (tmp_path / "run").exists()
