"""Construction of a trainer from the setup of a run, and its state from the last checkpoint."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from zoo.errors import Interrupted, UsageError, VerificationError
from zoo.io.output.staging import remove_stale_staging
from zoo.nn.layers.skip_init import PartlyInitialized, build_without_init
from zoo.objectives.base import Batch
from zoo.training.adapter import add_adapter
from zoo.training.base import RunSetup
from zoo.training.callbacks.checkpoints import CheckpointCallback
from zoo.training.callbacks.logs import LoggingCallback
from zoo.training.config.run_config import RunConfig
from zoo.training.dataloader import BatchLoader
from zoo.training.devices import deterministic_algorithms
from zoo.training.directory import locked, set_aside, write_directory
from zoo.training.distributed.context import DistContext
from zoo.training.graceful_shutdown import StopSignal, handle_signals
from zoo.training.logging.jsonl import PERFORMANCE_FILE
from zoo.training.logging.throughput import Throughput
from zoo.training.loss_module import LossModule
from zoo.training.state.checkpoints import load_tensors, remove_partial
from zoo.training.state.final_model import check_writable, model_file
from zoo.training.state.location import resume_command
from zoo.training.state.pretrained import InitRecord
from zoo.training.state.progress import list_checkpoints, was_stopped
from zoo.training.state.recovery import SavedCheckpoint, last_intact_checkpoint
from zoo.training.state.run_manifest import ParentRecord, read_manifest
from zoo.training.state.state_dict import (
    copy_weights_into,
    load_trainer_state_dict,
    load_unique_state_dict,
    saved_state_dict,
)
from zoo.training.trainer import Trainer

LOG = logging.getLogger("zoo")


@contextlib.contextmanager
def open_trainer(
    setup: RunSetup,
    path: Path,
    dist: DistContext,
    *,
    new: bool,
    force: bool = False,
    max_time: float | None = None,
) -> Iterator[Trainer]:
    """Yield the trainer of a run, which holds the lock of the run's directory.

    Args:
        setup: setup of the run.
        path: directory of the run.
        dist: the processes of the run.
        new: whether the run begins, and the directory is created.
        force: move a directory in the place of a new one, see ``set_aside``.
        max_time: seconds of training; ``None`` for no limit.
    """
    kernels = deterministic_algorithms(setup.config.deterministic)
    with handle_signals() as stop, kernels, contextlib.ExitStack() as lock:
        if dist.is_main_process and not new:
            lock.enter_context(locked(path))
            # A process that was killed may have left its staging directory.
            remove_stale_staging(path.absolute().parent)
        if dist.is_main_process and new and force:
            set_aside(path)
        dist.barrier()
        prepared = prepare_run(setup, path, dist)
        if dist.is_main_process and not new:
            log_resumed_step(path, setup.config, prepared)
        if dist.is_main_process and new:
            for label, text in run_plan(path, setup, prepared.loss_module).items():
                LOG.info("%s: %s", label, text)
            for warning in setup.warnings():
                LOG.warning("warning: %s", warning)
            write_directory(path, setup, dist, prepared.loss_module, prepared.pretrained)
            lock.enter_context(locked(path))
        dist.barrier()
        command = resume_command(setup.command, path)
        try:
            trainer = build_trainer(setup, path, dist, stop, prepared, max_time)
            yield trainer
        except Interrupted as error:
            raise Interrupted(error.what, f"{command} resumes it") from error
        except UsageError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            steps = list(list_checkpoints(path))
            checkpoint = "no checkpoint yet"
            if steps:
                checkpoint = f"the checkpoint of step {steps[-1]:,}"
            hint = f"{path} has {checkpoint}, and its log; make room, and `{command}` resumes it"
            raise UsageError(error.what, hint) from error.__cause__
        if dist.is_main_process and trainer.stopped_at is not None:
            LOG.info(
                "%s stopped after --max-time, at step %s of %s; `%s` goes on",
                path,
                f"{trainer.stopped_at:,}",
                f"{setup.config.max_steps:,}",
                command,
            )


@dataclass(frozen=True)
class PreparedRun:
    """The parts of a trainer, before the model is wrapped for several devices."""

    loss_module: LossModule  # The model and its objective, on the device.
    train_dataloader: BatchLoader  # Micro-batches of this process by step.
    eval_batches: Sequence[Batch]  # Held-out micro-batches of this process.
    # Last intact checkpoint of a run that is resumed, else ``None``.
    checkpoint: SavedCheckpoint | None
    # Record of the pretrained weights that the run started from, or ``None``.
    pretrained: InitRecord | None
    parent: ParentRecord | None


def prepare_run(setup: RunSetup, run: Path, dist: DistContext) -> PreparedRun:
    """Build the model and its data loaders, and find the checkpoint to resume from."""
    checkpoint = last_intact_checkpoint(run, setup.config, dist)
    has_adapter = setup.config.adapter is not None
    # The checkpoint of step 0 has weights only if the run starts from a pretrained model. With an
    # adapter, no checkpoint has the base's weights.
    loads_all = False
    if checkpoint is not None and not has_adapter:
        loads_all = checkpoint.meta.step > 0 or setup.init is not None
    partial_model = build_model(setup, loads_all=loads_all)
    model = partial_model.module
    pretrained = _load_pretrained(setup, run, model, checkpoint)
    if has_adapter:
        assert pretrained is not None, "an adapter changes a pretrained model"
        add_adapter(setup, model, pretrained.new_parameters)
    setup.prepare_model(model)  # This also decides what is trained.
    if has_adapter and checkpoint is not None and checkpoint.meta.step == 0:
        groups = load_tensors(checkpoint.path, checkpoint.meta)
        weights = saved_state_dict(model, setup.config)
        copy_weights_into(weights, groups.get("weights", {}), checkpoint.path)
    if not loads_all:  # Otherwise weights are loaded later, with the optimizer's state.
        partial_model.require_values()
    completed_steps = 0
    parent = None
    if checkpoint is not None:
        completed_steps = checkpoint.meta.step
        parent = read_manifest(run).parent
    # The main process may write the plan of the rows; the others say whom they wait for.
    make_loader = partial(setup.train_dataloader, dist, completed_steps=completed_steps)
    loader = dist.main_process_first(make_loader)
    if parent is not None:
        loader.start_at(parent.step, parent.rows)
    return PreparedRun(
        LossModule(setup.objective, model.to(dist.device)),
        loader,
        setup.eval_batches(dist),
        checkpoint,
        pretrained,
        parent,
    )


def build_model(setup: RunSetup, *, loads_all: bool = False) -> PartlyInitialized:
    """Build the module to train, and initialize the parameters that are not loaded."""
    torch.manual_seed(setup.config.seed)

    def build() -> nn.Module:
        return setup.objective.model(setup.family, setup.model_config)

    def replaced_parameters(model: nn.Module) -> Iterable[Tensor]:
        if loads_all:
            return model.parameters()
        return setup.replaced_parameters(model)

    return build_without_init(build, replaced_parameters)


def _load_pretrained(
    setup: RunSetup, run: Path, model: nn.Module, checkpoint: SavedCheckpoint | None
) -> InitRecord | None:
    """Load the pretrained weights that the run starts from, if any, and return their record."""
    if setup.init is None:
        return None
    if setup.init.record is not None and checkpoint is None:
        raise VerificationError(
            f"{run} has no checkpoint left, and began with pretrained weights",
            "put its checkpoints back, or begin another run",
        )
    if setup.config.adapter is not None:  # Checkpoints of the run do not have the base's weights.
        record = setup.load_pretrained(model)
        return setup.init.record or record
    if checkpoint is not None and checkpoint.meta.step == 0:
        groups = load_tensors(checkpoint.path, checkpoint.meta)
        load_unique_state_dict(model, groups.get("weights", {}), checkpoint.path)
    return setup.init.record or setup.load_pretrained(model)


def build_trainer(
    setup: RunSetup,
    run: Path,
    dist: DistContext,
    stop: StopSignal,
    prepared: PreparedRun,
    max_time: float | None = None,
) -> Trainer:
    """Return the trainer of a run, restored from the checkpoint of ``prepared``."""
    if dist.is_main_process:
        remove_partial(run)
        for name, trained in setup.objective.models_to_save(prepared.loss_module.model).items():
            file = model_file(setup.family, setup.tokenizer, trained, setup.generation)
            check_writable(run / name, setup.family, setup.tokenizer, file)
    trainer = Trainer(
        prepared.loss_module,
        setup.config,
        dist,
        prepared.train_dataloader,
        prepared.eval_batches,
        stop=stop,
        max_time=max_time,
        source_shares=setup.source_shares(),
    )
    checkpoint = prepared.checkpoint
    metrics_position = 0
    if checkpoint is not None:
        metrics_position = checkpoint.meta.metrics_position
        if checkpoint.meta.step > 0:  # Step 0 only has initial weights.
            tensors = load_tensors(checkpoint.path, checkpoint.meta)
            load_trainer_state_dict(trainer, tensors, checkpoint)
    logs = None
    if dist.is_main_process:
        throughput = Throughput(dist.device, devices=dist.world_size)
        logs = LoggingCallback(run, setup.loggers, throughput, metrics_position, setup.data_log())
    saving = CheckpointCallback(run, setup, dist, logs, prepared.pretrained, checkpoint)
    # A checkpoint is saved before the report is rendered.
    trainer.callbacks = [*setup.callbacks(run), saving]
    if logs is not None:
        trainer.callbacks.append(logs)
    return trainer


def run_plan(path: Path, setup: RunSetup, loss_module: LossModule) -> dict[str, str]:
    """Return what is trained, on what, for how long and where to."""
    parameters = sum(p.numel() for p in loss_module.parameters() if p.requires_grad)
    name = setup.family.name
    size = getattr(setup.config, "size", None)
    if size and setup.init is None:
        name = f"{name} {size}"
    if setup.origin:
        name = f"{name} {setup.origin}"
    model = f"{name}, {parameters:,} parameters to train, {setup.objective.name}"
    return {"model": model, **setup.plan(), "directory": str(path)}


def log_resumed_step(path: Path, config: RunConfig, prepared: PreparedRun) -> None:
    """Log the step at which a run is resumed."""
    step = 0 if prepared.checkpoint is None else prepared.checkpoint.meta.step
    parent = prepared.parent
    total = f"{config.max_steps:,}"
    if parent is not None and parent.step == step and not (path / PERFORMANCE_FILE).exists():
        LOG.info("%s continues %s at step %s of %s", path, parent.path, f"{step:,}", total)
    elif (path / "model").is_dir() and not was_stopped(path):
        LOG.info("%s is already finished, at step %s", path, f"{step:,}")
    else:
        LOG.info("%s is resumed at step %s of %s", path, f"{step:,}", total)
