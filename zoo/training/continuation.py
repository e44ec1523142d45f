"""A new run that goes on where another one stopped: the settings, and what it takes over."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from zoo.errors import UsageError
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.json import encode_json
from zoo.report.mistakes import MISTAKES, read_mistakes
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import ConfigDict, check_kinds, config_diff
from zoo.training.config.run_config import RunConfig
from zoo.training.config.schema import DROPOUT, validate_config, with_given
from zoo.training.logging.jsonl import METRICS_FILE
from zoo.training.state.checkpoints import (
    CHECKPOINTS,
    STATE,
    CheckpointMeta,
    is_optimizer_file,
    known_digests,
    link_or_copy,
    list_checkpoints,
    read_meta,
    settings_digest,
)
from zoo.training.state.location import DATA_OPTIONS
from zoo.training.state.recovery import SavedCheckpoint
from zoo.training.state.run_manifest import RunManifest

# settings that may change; the state of a run goes with all others
CHANGEABLE = {
    "max_steps",
    "warmup_ratio",
    "global_batch_tokens",
    "batch_size",
    "micro_batch_tokens",
    "micro_batch_size",
    "optimizer.learning_rate",
    "optimizer.betas",
    "optimizer.eps",
    "optimizer.weight_decay",
    "optimizer.bias_correction",
    "optimizer.layerwise_lr_decay",
    "optimizer.max_grad_norm",
    "lr_scheduler.name",
    "lr_scheduler.warmup_steps",
    "lr_scheduler.min_lr_ratio",
    "lr_scheduler.decay_fraction",
    "lr_scheduler.decay_type",
    "early_stopping_patience",
    "precision",
    "compile",
    "deterministic",
    "gradient_checkpointing",
    "logging_steps",
    "eval_steps",
    "eval_sequences",
    "save_steps",
    "save_total_limit",
    "keep_optimizer",
    "report_to",
    "distillation.teacher_backend",
    "distillation.cache_teacher",
    *map(".".join, DATA_OPTIONS),
}
# settings that the state of the optimizer goes with, and nothing else
OF_OPTIMIZER = {
    "optimizer.name",
    "optimizer.min_dim_size_to_factor",
    "optimizer.initial_accumulator_value",
    "freeze_layers",
}


def continued_config(
    parent: Path,
    before: ConfigDict,
    given: Mapping[str, Any],
    config_type: type[RunConfig],
    *,
    reset_optimizer: bool,
) -> RunConfig:
    """Return the configuration of a run that continues another one."""
    # It begins with the last checkpoint of its parent, under its own settings. Order, masks and
    # dropout are functions of the seed and the step, so that it ends like a parent that had these
    # settings from the beginning. With another batch size, it begins with the row after those that
    # were read.
    check_kinds(given)
    config = validate_config(with_given(before, given, config_type), config_type)
    changeable = CHANGEABLE | (OF_OPTIMIZER if reset_optimizer else set())
    if issubclass(config_type, FineTuneConfig):
        changeable = changeable | {"num_train_epochs"}
        if "num_train_epochs" in given and "max_steps" not in given:
            config = msgspec.structs.replace(config, max_steps=0)  # follow from the epochs
    if "warmup_ratio" in given and "warmup_steps" not in given.get("lr_scheduler", {}):
        schedule = msgspec.structs.replace(config.lr_scheduler, warmup_steps=0)
        config = msgspec.structs.replace(config, lr_scheduler=schedule)
    first = validate_config(before, config_type)
    for line in config_diff(msgspec.to_builtins(first), msgspec.to_builtins(config)):
        name, _, values = line.partition(": ")
        if name in changeable or (name.startswith("config.") and name.endswith(DROPOUT)):
            continue
        what = f"{name} cannot change where {parent} is continued: {values}"
        if name in OF_OPTIMIZER:
            raise UsageError(what, "--reset-optimizer begins with a new state of the optimizer")
        model = "" if name == "seed" else f", such as one with --init-from {parent / 'model'}"
        raise UsageError(what, f"leave it out, or begin another run{model}")
    # as many steps of shorter rows as the parent
    warmup = getattr(config, "seq_len_warmup", None)
    steps = first.seq_len_warmup_steps
    if warmup is None or config.max_steps == first.max_steps:
        return config
    if config.max_steps <= steps:
        raise UsageError(
            f"the first {steps} steps of {parent} have shorter rows, and this run would have "
            f"{config.max_steps}",
            f"--max-steps {steps + 1}, or more",
        )
    warmup = msgspec.structs.replace(warmup, fraction=steps / config.max_steps)
    return msgspec.structs.replace(config, seq_len_warmup=warmup)


def rows_read(config: RunConfig, record: RunManifest, step: int) -> int:
    """Return the number of rows of the training data that a run has read before a step."""
    sizes = config.step_sizes()
    warmup_steps = config.seq_len_warmup_steps
    # shorter rows count while the run has them, and not later
    first, size = (0, sizes[-1]) if step < warmup_steps else (warmup_steps, sizes[0])
    if record.parent is not None and record.parent.step >= first:
        return record.parent.rows + (step - record.parent.step) * size
    return (step - first) * size


def check_state(
    parent: Path, saved: SavedCheckpoint | None, *, reset_optimizer: bool
) -> SavedCheckpoint:
    """Return the checkpoint of a run that another one continues."""
    if saved is None or saved.meta.step == 0:
        raise UsageError(
            f"{parent} has no checkpoint of a step yet", "train it further with --resume"
        )
    if saved.meta.optimizer == "dropped" and not reset_optimizer:
        raise UsageError(
            f"{parent} has no state of the optimizer: it ended without --keep-optimizer",
            "--reset-optimizer continues with its weights, and a new state",
        )
    return saved


def check_progress(parent: Path, saved: SavedCheckpoint, config: RunConfig) -> None:
    """Check that a run that continues another one has a step to do."""
    step = saved.meta.step
    patience = getattr(config, "early_stopping_patience", None)
    if config.max_steps <= step:
        raise UsageError(
            f"{parent} has done {step:,} steps, and this run would end at step "
            f"{config.max_steps:,}",
            "--max-steps is the total number of steps, with those that are done",
        )
    if patience is not None and saved.meta.best is not None:
        without = step // config.eval_steps - saved.meta.best[1] // config.eval_steps
        if without >= patience:
            raise UsageError(
                f"the last {without} evaluations of {parent} were no better than the one before",
                "--set early_stopping_patience=null, or a higher number",
            )


def copy_state(
    parent: Path,
    target: Path,
    saved: SavedCheckpoint,
    configs: tuple[RunConfig, RunConfig],
    *,
    reset_optimizer: bool,
) -> None:
    """Give a new run what its parent has up to a step.

    This is the last and the best checkpoint, the log, and the mistakes at the best evaluation.
    """
    before, config = configs
    best = saved.meta.best
    paths = list_checkpoints(parent)
    chosen = {saved.path: saved.meta}
    if best is not None and best[1] != saved.meta.step:
        if best[1] in paths:
            path = paths[best[1]]
            digests = known_digests(before)
            chosen[path] = read_meta(path, steps=before.max_steps, settings=digests)
        else:
            best = None
    for path, meta in chosen.items():
        folder = target / CHECKPOINTS / path.name
        folder.mkdir(parents=True)
        changes: dict[str, Any] = {"settings": settings_digest(config), "digest": NO_DIGEST}
        if meta is saved.meta:
            changes["best"] = best
        if meta is not saved.meta or reset_optimizer:  # no run goes on from the best one
            changes["files"] = {n: d for n, d in meta.files.items() if not is_optimizer_file(n)}
            changes["optimizer"] = "reset" if meta is saved.meta else "dropped"
        if reset_optimizer:
            changes["optimizer_began"] = saved.meta.step
        child: CheckpointMeta = msgspec.structs.replace(meta, **changes)
        for name in child.files:
            (folder / name).parent.mkdir(exist_ok=True)
            link_or_copy(path / name, folder / name)
        (folder / STATE).write_bytes(add_digest(encode_json(child)))
    with (parent / METRICS_FILE).open("rb") as file:
        (target / METRICS_FILE).write_bytes(file.read(saved.meta.metrics_position))
    mistakes = read_mistakes(parent)
    if mistakes is not None and best is not None and mistakes.step == best[1]:
        (target / MISTAKES).write_bytes(encode_json(mistakes))
