"""A run of the recipe of DistilBERT against a loop over models of transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.distillation.making import distill, make_setup, pretrained, settings
from tests.training.runs import records
from zoo.checkpoint import load_checkpoint
from zoo.conformance.hf_reference import reference_model
from zoo.distillation.setup import DistillSetup
from zoo.inference.load_model import load_model
from zoo.training.build import prepare_run
from zoo.training.distributed.context import DistContext

STEPS, WARMUP, RATE, TEMPERATURE = 20, 4, 1e-2, 2.0
ADAMW = {
    "name": "adamw",
    "learning_rate": RATE,
    "betas": [0.9, 0.98],
    "eps": 1e-6,
    "weight_decay": 0.0,
    "bias_correction": True,
    "max_grad_norm": 5.0,
}
RUN = {
    "student": {"dropout": 0.0, "attention_dropout": 0.0},
    "data": {"reader": {"document_separator": "file"}},  # a row is of one document
    "max_steps": STEPS,
    "eval_steps": STEPS,
    "save_steps": STEPS,
    "micro_batch_tokens": 256,
    "optimizer": ADAMW,
    "lr_scheduler": {"name": "linear", "warmup_steps": WARMUP},
}


def reference_models(setup: DistillSetup, run: Path, teacher: Path) -> tuple[Any, Any]:
    """Return the teacher, and the student before its first step."""
    prepared = prepare_run(setup, run, DistContext.initialize("cpu"))
    prepared.train_dataloader.close()
    module: Any = prepared.loss_module.model
    state = {name: tensor.clone() for name, tensor in module.student.state_dict().items()}
    student = reference_model(setup.family, setup.model_config, "masked-lm", state)
    assert type(student).__name__ == "DistilBertForMaskedLM"
    checkpoint = load_checkpoint(teacher)
    weights = load_model(checkpoint).state_dict()
    head = checkpoint.head_name
    return reference_model(checkpoint.family, checkpoint.config, head, weights), student


def losses_by_hand(teacher: Any, student: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Return the terms of ``distiller.py``, released with arXiv:1910.01108."""
    ids, real = batch["input_ids"], batch["document_ids"] != 0
    assert batch["document_ids"].max() == 1
    inputs = {"input_ids": ids, "attention_mask": real.long(), "output_hidden_states": True}
    with torch.no_grad():
        target = teacher(**inputs)
    output = student(**inputs)
    labels = (
        torch.full_like(ids, -100).view(-1).index_copy(0, batch["label_positions"], batch["labels"])
    )
    states = output.hidden_states[-1][real], target.hidden_states[-1][real]
    logits = [side.logits for side in (output, target)]
    soft = [side[real] / TEMPERATURE for side in logits]
    divergence = F.kl_div(soft[0].log_softmax(-1), soft[1].softmax(-1), reduction="batchmean")
    return {
        "kl": divergence * TEMPERATURE**2,
        "masked-lm": F.cross_entropy(logits[0].flatten(0, 1), labels, ignore_index=-100),
        "cosine": F.cosine_embedding_loss(*states, states[0].new_ones(len(states[0]))),
    }


def test_the_curve_is_that_of_a_loop_over_transformers(tmp_path: Path) -> None:
    teacher = pretrained("bert", objective="masked-lm")
    tree = settings(teacher, "distilbert", **RUN)
    setup = make_setup(tree)
    model, student = reference_models(setup, tmp_path / "none", teacher)
    parameters = [p.requires_grad_() for p in student.parameters()]
    optimizer = torch.optim.AdamW(
        parameters, lr=RATE, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.0
    )
    loader = setup.train_dataloader(DistContext.initialize("cpu"))
    curve = []
    for step in range(STEPS):
        (batch,) = loader.make_batches(step)
        losses = losses_by_hand(model, student, batch.tensors)
        curve.append({name: loss.item() for name, loss in losses.items()})
        (5 * losses["kl"] + 2 * losses["masked-lm"] + losses["cosine"]).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 5.0)
        factor = step / WARMUP if step < WARMUP else (STEPS - step) / (STEPS - WARMUP)
        optimizer.param_groups[0]["lr"] = RATE * factor
        optimizer.step()
        optimizer.zero_grad()
    loader.close()
    run = distill(tmp_path / "run", tree)
    for record, expected in zip(records(run), curve, strict=True):
        assert record["losses"] == pytest.approx(expected, abs=1e-4), record["step"]
    assert curve[-1]["masked-lm"] < curve[0]["masked-lm"] - 0.1
