"""Distillation of a causal language model: the released way, a plain loop, the zoo, and its cache.

    python -m benchmarks.distillation [--folder FOLDER] [--threads 2] [--steps 40] [--rounds 3]
    python -m benchmarks.distillation --layers 12 3

Targets: 1.6 times the tokens per second of the released way at 0.8 of its memory, 1.0 times those
of the plain loop, and with a warm cache twice those.

All distil the same teacher (8 layers, width 256) into the same student (4 layers) by half the
cross-entropy of the next token and half the KL divergence at a temperature of 2, on rows of 128
tokens of FOLDER's texts, by default the corpus of the package. ``--layers`` sets the numbers of
layers: a cache saves the teacher's forward pass, at most 8 of the 20 passes through a layer of a
step (those of the student are 4 forward and 8 backward), and 12 of 21 with 12 layers and 3.

* *released*: as distiller.py of Sanh et al. 2019 does: a padded row for each text, both models of
  transformers with all logits and hidden states, the loss over the tokens that are no padding;
* *plain*: a loop over the packed batches of the zoo with its models, as one would write by hand;
* *zoo*: the trainer of ``zoo distill``;
* *cached*: the same with ``--cache-teacher``, of which all rows are there.

Padding does not count as tokens. Loading, evaluation and saving are not measured. Each side is a
process of its own, in turn in each round. The losses of *plain* and *zoo* are compared first.
"""

import argparse
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks._common import machine, versions
from benchmarks._sides import (
    Measured,
    Side,
    add_side_options,
    alternate_sides,
    is_side,
    require_equal_losses,
    run_side,
    speed_table,
    timed_steps,
)

TEMPERATURE = 2.0
RATE = 1e-4
WARM_UP = 5
COMPARED = 3
TOLERANCE = 1e-4  # of losses, relative
FULL = {"width": 256, "heads": 4, "vocab": 8192, "length": 128, "rows": 16}
SMOKE = {"width": 32, "heads": 2, "vocab": 400, "length": 32, "rows": 4}
SAMPLE = Path(__file__).parent.parent / "zoo" / "data" / "sample"
MODULE = "benchmarks.distillation"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=SAMPLE)
    parser.add_argument("--layers", type=int, nargs=2, default=[8, 4], help="teacher, student")
    add_side_options(parser, steps=40)
    options = parser.parse_args()
    if options.smoke:
        options.steps = WARM_UP + 3
        options.rounds = 1
        options.layers = [2, 1]
    if is_side(options, {"teacher": make_teacher, **SIDES}):
        return
    with tempfile.TemporaryDirectory() as scratch:
        run_side(MODULE, "teacher", make_teacher, scratch, options)
        run_side(MODULE, "cached", with_cache, scratch, options)  # fills the cache
        timings = alternate_sides(MODULE, SIDES, scratch, options)
    require_equal_losses(timings, ["zoo", "plain"], TOLERANCE)
    layers = "{} layers into {}".format(*options.layers)
    print(f"{layers}; {machine(options.threads)}; {versions('torch', 'transformers')}\n")
    print(speed_table(timings, "tokens/s", ["released", "plain"]))


def make_teacher(scratch: Path, options: argparse.Namespace) -> Measured:
    """Train a teacher for a step; what it predicts does not matter for speed."""
    from zoo.training.distributed.context import DistContext
    from zoo.training.run import PretrainRun

    size = SMOKE if options.smoke else FULL
    config = {
        "num_layers": options.layers[0],
        "hidden_size": size["width"],
        "num_heads": size["heads"],
        "intermediate_size": 4 * size["width"],
        "max_positions": size["length"],
    }
    tree = {"family": "gpt", "size": "tiny", "vocab_size": size["vocab"], "config": config}
    settings = {**tree, **run_settings(options), "max_steps": 1}
    PretrainRun(settings, DistContext.initialize("cpu"), scratch / "teacher").start()
    return {}


def run_settings(options: argparse.Namespace) -> dict[str, Any]:
    size = SMOKE if options.smoke else FULL
    tokens = size["rows"] * size["length"]
    return {
        "data": {"paths": [str(options.folder)]},
        "seq_len": size["length"],
        "seq_len_warmup": None,
        "global_batch_tokens": tokens,
        "micro_batch_tokens": tokens,
        "eval_sequences": 4,
        "report_to": [],
    }


def prepare(scratch: Path, options: argparse.Namespace, *, cached: bool = False) -> Any:
    """Return the setup of a run, and its model and batches."""
    from zoo.distillation.runs import DistillRun
    from zoo.training.build import prepare_run
    from zoo.training.config.overrides import deep_merge
    from zoo.training.distributed.context import DistContext

    tree = {
        "distillation": {
            "teachers": [str(scratch / "teacher" / "model")],
            "recipe": "logits",
            "cache_teacher": str(scratch / "cache") if cached else None,
        },
        "student": {
            "name": "gpt",
            "num_layers": options.layers[1],
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        "max_steps": options.steps,
        "optimizer": {
            "name": "adamw",
            "learning_rate": RATE,
            "betas": [0.9, 0.999],
            "eps": 1e-8,
            "weight_decay": 0.0,
            "bias_correction": True,
            "max_grad_norm": 1.0,
        },
        "lr_scheduler": {"name": "constant", "warmup_steps": 0, "min_lr_ratio": 0.0},
    }
    setup: Any = DistillRun.build_setup(
        DistillRun.build_config(deep_merge(run_settings(options), tree), {})
    )
    return setup, prepare_run(setup, scratch / "none", DistContext.initialize("cpu"))


def timed(steps: int, step: Callable[[int], tuple[float, int]]) -> Measured:
    """Return the tokens per second after the warm-up, and the first losses."""
    measured = timed_steps(steps, WARM_UP, step)
    return {**measured, "losses": measured["losses"][:COMPARED]}


def released(scratch: Path, options: argparse.Namespace) -> Measured:
    """Time padded batches, with all logits and hidden states of both models."""
    import torch
    import transformers
    from torch.nn import functional as F

    setup, prepared = prepare(scratch, options)
    prepared.train_dataloader.close()
    teacher = setup.objective.teachers[0].checkpoint
    models = []
    for family, config in ((setup.family, setup.model_config), (teacher.family, teacher.config)):
        kind = getattr(transformers, family.architecture(config, "causal-lm"))
        hub = {**family.to_hub(config), "use_cache": False}
        models.append(kind(kind.config_class(**hub)))
    student = models[0].train()
    other = models[1].eval()
    optimizer = torch.optim.AdamW(student.parameters(), lr=RATE, weight_decay=0.0)
    batches = padded_batches(setup, options.steps)

    def step(_: int) -> tuple[float, int]:
        ids, mask = next(batches)
        inputs = {"input_ids": ids, "attention_mask": mask, "output_hidden_states": True}
        with torch.no_grad():
            target = other(**inputs).logits
        logits = student(**inputs).logits
        chosen = mask.bool().unsqueeze(-1).expand_as(logits)
        soft = [
            values.masked_select(chosen).view(-1, logits.shape[-1]) / TEMPERATURE
            for values in (logits, target)
        ]
        divergence = F.kl_div(soft[0].log_softmax(-1), soft[1].softmax(-1), reduction="batchmean")
        labels = ids.masked_fill(mask == 0, -100)[:, 1:].reshape(-1)
        entropy = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels)
        loss = 0.5 * TEMPERATURE**2 * divergence + 0.5 * entropy
        update(loss, student, optimizer)
        return loss.item(), int(mask.sum())

    return timed(options.steps, step)


def padded_batches(setup: Any, steps: int) -> Iterator[tuple[Any, Any]]:
    """Yield ids and masks of padded texts, shuffled, each at most as long as a row."""
    import numpy as np
    import torch

    split = setup.base.corpus.split("train")
    length = setup.config.seq_len
    starts = split.document_starts()
    pieces = [
        (at, min(at + length, int(end)))
        for start, end in itertools.pairwise(starts)
        for at in range(int(start), int(end), length)
    ]
    rows = setup.config.batch_size(length)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        chosen = [pieces[k] for k in rng.integers(len(pieces), size=rows)]
        texts = [torch.from_numpy(split.read(*piece).astype(np.int64)) for piece in chosen]
        ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
        mask = torch.arange(ids.shape[1]) < torch.tensor([[len(text)] for text in texts])
        yield ids, mask.long()


def update(loss: Any, model: Any, optimizer: Any) -> None:
    """Update the weights of a model."""
    import torch

    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def plain(scratch: Path, options: argparse.Namespace) -> Measured:
    """Time a loop over packed batches."""
    import torch
    from torch.nn import functional as F

    setup, prepared = prepare(scratch, options)
    loader = prepared.train_dataloader
    student = prepared.loss_module.model.student
    teacher = setup.objective.teachers[0].model
    optimizer = torch.optim.AdamW(student.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    names = ("input_ids", "document_ids", "position_ids")

    def step(number: int) -> tuple[float, int]:
        (batch,) = loader.batches(number)
        inputs = {name: batch.tensors[name] for name in names if name in batch.tensors}
        positions = batch.tensors["label_positions"]
        with torch.no_grad():
            target = teacher.scores(teacher.encode(**inputs).flatten(0, 1)[positions])
        logits = student.scores(student.encode(**inputs).flatten(0, 1)[positions])
        divergence = F.kl_div(
            (logits / TEMPERATURE).log_softmax(-1),
            (target / TEMPERATURE).softmax(-1),
            reduction="batchmean",
        )
        entropy = F.cross_entropy(logits, batch.tensors["labels"])
        loss = 0.5 * TEMPERATURE**2 * divergence + 0.5 * entropy
        update(loss, student, optimizer)
        return loss.item(), batch.tokens

    measured = timed(options.steps, step)
    loader.close()
    return measured


def trained(scratch: Path, options: argparse.Namespace, *, cached: bool = False) -> Measured:
    """Time the trainer."""
    from zoo.training.distributed.context import DistContext
    from zoo.training.trainer import Trainer

    setup, prepared = prepare(scratch, options, cached=cached)
    loader = prepared.train_dataloader
    trainer = Trainer(prepared.loss_module, setup.config, DistContext.initialize("cpu"), loader)

    def step(number: int) -> tuple[float, int]:
        batches = loader.batches(number)
        trainer.train_step(batches)
        means = trainer.train_metrics.compute_and_reset(trainer.loss_weights)
        return means["loss"], sum(batch.tokens for batch in batches)

    measured = timed(options.steps, step)
    loader.close()
    if cached:
        setup.objective.teachers[0].cache.close()
    return measured


def with_cache(scratch: Path, options: argparse.Namespace) -> Measured:
    """Time the trainer with a cache, which the first call fills."""
    return trained(scratch, options, cached=True)


SIDES: dict[str, Side] = {
    "released": released,
    "plain": plain,
    "zoo": trained,
    "cached": with_cache,
}


if __name__ == "__main__":
    main()
