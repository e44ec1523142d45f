"""A new run that goes on where another one stopped: the settings, and what it takes over."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from zoo.errors import UsageError
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.json import encode_json
from zoo.report.mistakes import MISTAKES, read_mistakes
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import ConfigDict, check_tables, config_diff
from zoo.training.config.run_config import RunConfig
from zoo.training.config.schema import DROPOUT, FSDPConfig, validate_config, with_requested
from zoo.training.logging.jsonl import METRICS_FILE
from zoo.training.state.checkpoints import (
    STATE,
    CheckpointMeta,
    accepted_digests,
    link_or_copy,
    read_meta,
    settings_digest,
    without_optimizer_files,
)
from zoo.training.state.location import DATA_OPTIONS
from zoo.training.state.progress import CHECKPOINTS, list_checkpoints
from zoo.training.state.recovery import SavedCheckpoint
from zoo.training.state.run_manifest import RunManifest

# Settings that may change. The state of a run goes with all others.
CHANGEABLE_SETTINGS = {
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
    *(f"fsdp_config.{name}" for name in FSDPConfig.__struct_fields__),
    "logging_steps",
    "eval_steps",
    "eval_sequences",
    "save_steps",
    "save_total_limit",
    "async_save",
    "keep_optimizer",
    "report_to",
    "distillation.teacher_backend",
    "distillation.cache_teacher",
    *map(".".join, DATA_OPTIONS),
}
# Tables whose settings may change: the sources of a run and their weights.
CHANGEABLE_TABLES = ("data.sources.", "data.curriculum", "data.mixing", "data.temperature")
# Settings that only the state of the optimizer goes with.
OPTIMIZER_SETTINGS = {
    "optimizer.name",
    "optimizer.min_dim_size_to_factor",
    "optimizer.initial_accumulator_value",
    "freeze_layers",
}


def continued_config(
    parent: Path,
    parent_settings: ConfigDict,
    requested: Mapping[str, Any],
    config_type: type[RunConfig],
    *,
    reset_optimizer: bool,
) -> RunConfig:
    """Return the configuration of a run that continues another one.

    The run begins with the last checkpoint of its parent, under its own settings. Order, masks and
    dropout are functions of the seed and the step, so that it ends like a parent that had these
    settings from the beginning. With another batch size, it begins with the row after those that
    were read.

    Args:
        parent: directory of the run to continue.
        parent_settings: the settings of that run.
        requested: the settings that override them.
        config_type: type of both configurations.
        reset_optimizer: whether the run begins with a new state of the optimizer.

    Raises:
        UsageError: a setting changes that the state of the parent depends on.
    """
    check_tables(requested)
    parent_config = validate_config(parent_settings, config_type)
    config = validate_config(with_requested(parent_settings, requested, config_type), config_type)
    if (
        issubclass(config_type, FineTuneConfig)
        and "num_train_epochs" in requested
        and "max_steps" not in requested
    ):
        config = msgspec.structs.replace(config, max_steps=0)  # The steps follow from the epochs.
    if "warmup_ratio" in requested and "warmup_steps" not in requested.get("lr_scheduler", {}):
        schedule = msgspec.structs.replace(config.lr_scheduler, warmup_steps=0)
        config = msgspec.structs.replace(config, lr_scheduler=schedule)
    changeable = set(CHANGEABLE_SETTINGS)
    if reset_optimizer:
        changeable |= OPTIMIZER_SETTINGS
    if issubclass(config_type, FineTuneConfig):
        changeable.add("num_train_epochs")
    _check_changes(parent, parent_config, config, changeable)
    return _with_parent_warmup(parent, parent_config, config)


def _check_changes(
    parent: Path, parent_config: RunConfig, config: RunConfig, changeable: Collection[str]
) -> None:
    """Check that only changeable settings, and dropout, differ from those of the parent."""
    differences = config_diff(msgspec.to_builtins(parent_config), msgspec.to_builtins(config))
    for line in differences:
        name, _, values = line.partition(": ")
        if name in changeable or name.startswith(CHANGEABLE_TABLES):
            continue
        if name.startswith("config.") and name.endswith(DROPOUT):
            continue
        what = f"{name} cannot change where {parent} is continued: {values}"
        if name in OPTIMIZER_SETTINGS:
            raise UsageError(what, "--reset-optimizer begins with a new state of the optimizer")
        hint = "leave it out, or begin another run"
        if name != "seed":
            hint += f", such as one with --init-from {parent / 'model'}"
        raise UsageError(what, hint)


def _with_parent_warmup(parent: Path, parent_config: RunConfig, config: RunConfig) -> RunConfig:
    """Return a configuration with as many steps of shorter rows as the parent."""
    warmup = getattr(config, "seq_len_warmup", None)
    if warmup is None or config.max_steps == parent_config.max_steps:
        return config
    steps = parent_config.seq_len_warmup_steps
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
    # Shorter rows count while the run has them, and not later.
    if step < config.seq_len_warmup_steps:
        first_step = 0
        rows_per_step = sizes[-1]
    else:
        first_step = config.seq_len_warmup_steps
        rows_per_step = sizes[0]
    if record.parent is not None and record.parent.step >= first_step:
        return record.parent.rows + (step - record.parent.step) * rows_per_step
    return (step - first_step) * rows_per_step


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
        _, best_step = saved.meta.best
        evaluations = step // config.eval_steps - best_step // config.eval_steps
        if evaluations >= patience:
            raise UsageError(
                f"the last {evaluations} evaluations of {parent} were no better than the one "
                "before",
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

    Args:
        parent: directory of the parent.
        target: directory of the new run, which is being written.
        saved: the checkpoint of the parent that the new run begins with.
        configs: configurations of the parent and of the new run.
        reset_optimizer: leave the state of the optimizer behind.
    """
    parent_config, config = configs
    best = saved.meta.best
    best_path = None
    if best is not None and best[1] != saved.meta.step:
        best_path = list_checkpoints(parent).get(best[1])
        if best_path is None:
            best = None
    changes: dict[str, Any] = {"settings": settings_digest(config), "digest": NO_DIGEST}
    if reset_optimizer:
        changes["optimizer_began"] = saved.meta.step
    last_changes = {**changes, "best": best}
    if reset_optimizer:
        last_changes["files"] = without_optimizer_files(saved.meta.files)
        last_changes["optimizer"] = "reset"
    _copy_checkpoint(saved.path, target, msgspec.structs.replace(saved.meta, **last_changes))
    if best_path is not None:
        digests = accepted_digests(parent_config)
        meta = read_meta(best_path, steps=parent_config.max_steps, settings=digests)
        # No run goes on from the best checkpoint.
        changes["files"] = without_optimizer_files(meta.files)
        changes["optimizer"] = "dropped"
        _copy_checkpoint(best_path, target, msgspec.structs.replace(meta, **changes))
    with (parent / METRICS_FILE).open("rb") as file:
        (target / METRICS_FILE).write_bytes(file.read(saved.meta.metrics_position))
    mistakes = read_mistakes(parent)
    if mistakes is not None and best is not None and mistakes.step == best[1]:
        (target / MISTAKES).write_bytes(encode_json(mistakes))


def _copy_checkpoint(path: Path, run: Path, meta: CheckpointMeta) -> None:
    """Copy a checkpoint into the directory of a run, with the files and the record of ``meta``."""
    folder = run / CHECKPOINTS / path.name
    folder.mkdir(parents=True)
    for name in meta.files:
        (folder / name).parent.mkdir(exist_ok=True)
        link_or_copy(path / name, folder / name)
    (folder / STATE).write_bytes(add_digest(encode_json(meta)))
