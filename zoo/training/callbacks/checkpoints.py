"""The callback that saves checkpoints and final models."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.errors import VerificationError
from zoo.io.digests.files import FileDigest
from zoo.overrides import override
from zoo.training.adapter import adapter_record, has_tokenizer_of_base
from zoo.training.callbacks.logs import LoggingCallback
from zoo.training.distributed.context import DistContext
from zoo.training.distributed.parallelize import full_tensor
from zoo.training.state.checkpoint_writer import CheckpointWriter
from zoo.training.state.checkpoints import (
    OPTIMIZER,
    CheckpointMeta,
    Tensors,
    drop_optimizer_states,
    prune_checkpoints,
    settings_digest,
)
from zoo.training.state.final_model import (
    MAX_TIME,
    model_file,
    save_final_model,
    write_final_record,
)
from zoo.training.state.pretrained import InitRecord
from zoo.training.state.recovery import SavedCheckpoint
from zoo.training.state.run_manifest import read_manifest
from zoo.training.state.state_dict import (
    saved_state_dict,
    trainer_state_dict,
    unique_state_dict,
)
from zoo.training.trainer import Callback, Trainer, computes_in_bfloat16

if TYPE_CHECKING:
    from zoo.objectives.base import TrainedModel
    from zoo.training.base import RunSetup


class CheckpointCallback(Callback):
    """Saves checkpoints and the final models; part of every process."""

    def __init__(
        self,
        run: Path,
        setup: "RunSetup",
        dist: DistContext,
        logs: LoggingCallback | None,
        pretrained: InitRecord | None,
        resumed: SavedCheckpoint | None,
    ) -> None:
        self.run = run
        self.setup = setup
        self.logs = logs
        self.pretrained = pretrained
        self.resumed = resumed
        self.writer = CheckpointWriter(run, dist)

    @override
    def on_train_begin(self, trainer: Trainer) -> None:
        resumed = self.resumed
        if resumed is None or resumed.meta.optimizer != "dropped" or _has_ended(trainer):
            return
        raise VerificationError(
            f"{resumed.path} has no state of the optimizer, which is dropped when a run ends "
            "without --keep-optimizer",
            "restore its later checkpoints from a copy",
        )

    @override
    def on_save(self, trainer: Trainer) -> None:
        """Save a checkpoint, and remove old ones when it is written."""
        meta = CheckpointMeta(
            step=trainer.step,
            tokens=trainer.tokens,
            best=trainer.best,
            settings=settings_digest(trainer.config),
            optimizer_began=trainer.optimizer_began,
        )
        if self.logs is not None:
            meta.metrics_position = self.logs.jsonl.size()
            meta.metrics_digest = self.logs.jsonl.digest()
        state = trainer_state_dict(trainer)
        if _has_ended(trainer) and not trainer.config.keep_optimizer:
            meta.optimizer = "dropped"
            state[OPTIMIZER] = {}
        log = None if self.logs is None else self.logs.jsonl
        # The process waits for its last checkpoint, which has to be on the disk when it ends.
        in_background = trainer.config.async_save and not trainer.is_pausing
        self.writer.save(
            meta, state, log, keep=trainer.config.save_total_limit, in_background=in_background
        )

    @override
    def on_step_end(self, trainer: Trainer) -> None:
        """End the run if a checkpoint could not be written: its next save raises the error."""
        if self.writer.has_failed():
            trainer.should_pause = True

    @override
    def on_close(self, trainer: Trainer) -> None:
        self.writer.close()

    def _prune(self, trainer: Trainer) -> None:
        if trainer.dist.is_main_process:
            best_step = None
            if trainer.best is not None:
                _, best_step = trainer.best
            prune_checkpoints(self.run, keep=trainer.config.save_total_limit, best=best_step)

    @override
    def on_train_end(self, trainer: Trainer) -> None:
        """Write the final models, with the averaged weights if there is an EMA."""
        self._prune(trainer)  # A process that was killed after it saved the last step did not.
        if trainer.ema is not None:
            trainer.ema.copy_to(trainer.model)
        training = self._training_record(trainer)
        digests = {}
        for name, trained in self.setup.objective.models_to_save(trainer.model).items():
            # These calls are collective: each rank has a shard of the weights.
            weights = _full_tensors(saved_state_dict(trained.module, trainer.config))
            module_weights: Tensors = {}
            if trained.modules is not None:
                module_weights = _full_tensors(unique_state_dict(trained.modules))
            if trainer.dist.is_main_process:
                digests[name] = self._save_model(name, trained, weights, module_weights, training)
        if trainer.dist.is_main_process:
            write_final_record(self.run, digests, stopped_at=trainer.stopped_at)
            if trainer.stopped_at is None and not trainer.config.keep_optimizer:
                drop_optimizer_states(self.run)

    def _training_record(self, trainer: Trainer) -> dict[str, Any]:
        """Return the record of the training in the manifest of a final model."""
        record: dict[str, Any] = {
            "command": shlex.join(read_manifest(self.run).command),
            "objective": self.setup.objective.name,
            "seed": trainer.config.seed,
            "steps": trainer.step,
        }
        passes = self.setup.passes(trainer.step)
        if passes is not None:
            record["epochs"] = round(passes, 4)
        record["tokens"] = trainer.tokens
        if trainer.stopped_at is not None:
            record["stopped_by"] = MAX_TIME
        record["settings"] = _settings_of_card(trainer)
        record.update(self.setup.training_record(self.run, trainer.best))
        record["best"] = trainer.best
        record["init_from"] = msgspec.to_builtins(self.pretrained)
        return record

    def _save_model(
        self,
        name: str,
        trained: "TrainedModel",
        weights: Tensors,
        module_weights: Tensors,
        training: dict[str, Any],
    ) -> dict[str, FileDigest]:
        """Write a final model, or an adapter of it; return the digests of its files."""
        setup = self.setup
        model = model_file(setup.family, setup.tokenizer, trained, setup.generation)
        tokenizer = setup.tokenizer
        adapter = None
        if setup.config.adapter is not None:
            assert self.pretrained is not None, "an adapter changes a pretrained model"
            adapter = adapter_record(setup, trained, self.pretrained)
            if has_tokenizer_of_base(setup):
                tokenizer = None
        return save_final_model(
            self.run / name, model, tokenizer, weights, training, module_weights, adapter
        )


def _full_tensors(tensors: Tensors) -> Tensors:
    """Return the full tensors on the CPU; all processes must call it."""
    return {name: full_tensor(tensor).cpu() for name, tensor in tensors.items()}


def _settings_of_card(trainer: Trainer) -> dict[str, Any]:
    """Return the settings that a reader of a model card looks for, as they took effect."""
    config = trainer.config
    optimizer = config.optimizer
    schedule = config.lr_scheduler
    settings: dict[str, Any] = {
        "optimizer": optimizer.name,
        "learning_rate": optimizer.learning_rate,
        "lr_scheduler": schedule.name,
        "warmup_steps": schedule.warmup_steps,
        "weight_decay": optimizer.weight_decay,
        "batch_size": config.step_sizes()[0],
    }
    for name in ("global_batch_tokens", "max_seq_len", "seq_len"):
        value = getattr(config, name, None)
        if value is not None:
            settings[name] = value
    if trainer.step < config.max_steps:
        settings["max_steps"] = config.max_steps
    bfloat16 = computes_in_bfloat16(config, trainer.dist.device.type)
    settings["precision"] = "bfloat16" if bfloat16 else "float32"
    return settings


def _has_ended(trainer: Trainer) -> bool:
    return trainer.step == trainer.config.max_steps or trainer.should_stop
