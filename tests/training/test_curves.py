"""Loss curves equal those of a plain training loop with the reference library.

Both use the same batches, initial weights and optimizer, step for step.
"""

from typing import Any

import pytest
import torch

from tests.training.cases import dry
from tests.training.runs import small
from zoo.conformance.hf_reference import reference_model
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule
from zoo.training.optim.lr_scheduler import lr_multiplier
from zoo.training.setup import build_dataset, pretrain_setup
from zoo.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("shared_home")


def labels(tensors: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """Return labels of the same shape as the token ids, with -100 at unlabelled positions."""
    dense = torch.full_like(ids, -100)
    dense.view(-1)[tensors["label_positions"]] = tensors["labels"]
    return dense


def separate(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Unpack a batch into rows of one text, padded on the right."""
    numbers = tensors.get("document_ids", torch.ones_like(tensors["input_ids"]))
    wanted = labels(tensors, tensors["input_ids"])
    rows = [
        (ids[here], right[here])
        for ids, right, texts in zip(tensors["input_ids"], wanted, numbers, strict=True)
        for here in (texts == number for number in range(1, int(texts.max()) + 1))
    ]
    longest = max(len(ids) for ids, _ in rows)
    arrays = {
        "input_ids": torch.zeros(len(rows), longest, dtype=torch.int64),
        "attention_mask": torch.zeros(len(rows), longest, dtype=torch.int64),
        "labels": torch.full((len(rows), longest), -100),
    }
    for row, (ids, right) in enumerate(rows):
        arrays["input_ids"][row, : len(ids)] = ids
        arrays["attention_mask"][row, : len(ids)] = 1
        arrays["labels"][row, : len(ids)] = right
    return arrays


def loss_of(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the mean cross-entropy of the reference library's logits, with unshifted labels."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "objective", "steps"),
    [
        ("bert", "masked-lm", 20),
        pytest.param("bert", "masked-lm", 50, marks=pytest.mark.long),
        pytest.param("gpt", "causal-lm", 50, marks=pytest.mark.long),
    ],
)
def test_losses_of_each_step(family: str, objective: str, steps: int) -> None:
    config = dry(
        small(
            family,
            objective=objective,
            max_steps=steps,
            micro_batch_tokens=None,
            optimizer={"learning_rate": 1e-3, "weight_decay": 0.01, "bias_correction": True},
        )
    )
    setup = pretrain_setup(config)
    torch.manual_seed(0)
    model = setup.objective.model(setup.family, setup.model_config)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    peer = reference_model(setup.family, setup.model_config, setup.objective.head, state)
    peer.train()
    decayed = [p for p in peer.parameters() if p.dim() > 1]
    spared = [p for p in peer.parameters() if p.dim() < 2]
    chosen = config.optimizer
    groups: list[dict[str, Any]] = [
        {"params": decayed},
        {"params": spared, "weight_decay": 0.0},
    ]
    plain = torch.optim.AdamW(
        groups,
        betas=chosen.betas,
        eps=chosen.eps,
        weight_decay=chosen.weight_decay,
    )
    rows = build_dataset(setup, "train", config.global_batch_size)
    feed = BatchLoader(
        setup.objective,
        rows,
        seed=0,
        global_batch_size=config.global_batch_size,
        micro_batch_size=config.global_batch_size,
    )
    dist = DistContext(0, 1, torch.device("cpu"))
    trainer = Trainer(LossModule(setup.objective, model), config, dist, feed)
    for step in range(steps):
        (batch,) = feed.make_batches(step)
        trainer.train_step([batch])
        ours = trainer.train_metrics.compute_and_reset(setup.objective.loss_weights)["loss"]
        loss = loss_of(peer, separate(dict(batch.tensors)))
        for group in plain.param_groups:
            group["lr"] = chosen.learning_rate * lr_multiplier(config.lr_scheduler, step, steps)
        plain.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(peer.parameters(), chosen.max_grad_norm or float("inf"))
        plain.step()
        assert ours == pytest.approx(loss.item(), abs=1e-4), step
    feed.close()
