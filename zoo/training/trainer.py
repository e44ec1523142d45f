"""One run, from its first step or its last checkpoint to what it leaves behind."""

from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from zoo.errors import Interrupted
from zoo.training.dataloader import eval_batches, train_dataloader
from zoo.training.distributed.context import DistContext
from zoo.training.distributed.parallelize import full_tensor
from zoo.training.graceful_shutdown import StopSignal
from zoo.training.logging.metrics_logger import MetricsLogger
from zoo.training.logging.throughput import Throughput, training_flops
from zoo.training.loss_module import LossModule
from zoo.training.setup import TrainSetup
from zoo.training.state.checkpoints import (
    CheckpointMeta,
    load_tensors,
    prune_checkpoints,
    remove_partial,
    save_checkpoint,
    settings_digest,
)
from zoo.training.state.final_model import check_writable, model_file, save_final_model
from zoo.training.state.pretrained import InitRecord
from zoo.training.state.recovery import SavedCheckpoint, last_intact_checkpoint
from zoo.training.state.state_dict import (
    load_trainer_state_dict,
    load_unique_state_dict,
    trainer_state_dict,
    unique_state_dict,
)
from zoo.training.step import TrainStep


class Trainer:
    """A run in one process.

    Args:
        job: what is to be done.
        path: the run's directory.
        ranks: the processes that share it.
        stop: says whether to end early.

    Raises:
        UsageError: the corpus has less than a batch.
    """

    def __init__(self, job: TrainSetup, path: Path, ranks: DistContext, stop: StopSignal) -> None:
        self.job, self.path, self.ranks, self.stop = job, path, ranks, stop
        self.settings = job.config
        self.saved: SavedCheckpoint | None = last_intact_checkpoint(path, self.settings, ranks)
        torch.manual_seed(self.settings.seed)
        learner = job.objective.model(job.family, job.model_config)
        self.pretrained = self._set_out(learner)
        networks = job.objective.models_to_save(learner).items()
        self.results = {name: model_file(job, network) for name, network in networks}
        self.loss_module = LossModule(job.objective, learner.to(ranks.device))
        self.train_dataloader = train_dataloader(
            job, ranks, completed_steps=self.saved.meta.step if self.saved else 0
        )
        self.eval_dataloader = eval_batches(job, ranks)
        self.best: tuple[float, int] | None = None

    def _set_out(self, model: nn.Module) -> InitRecord | None:
        """Give a learner the weights that the run starts with, if they are not fresh ones."""
        origin, saved = self.job.init, self.saved
        if origin is None:
            return None
        if saved is not None and saved.meta.step == 0:
            groups = load_tensors(saved.path, saved.meta)
            load_unique_state_dict(model, groups.get("weights", {}), saved.path)
        return origin.record or origin.load_weights(self.job.objective, model)

    def train(self) -> None:
        """Train to the last step, and write what was trained.

        Raises:
            Interrupted: a signal came; all is saved.
        """
        if self.ranks.is_main_process:  # and no other process is at work here
            remove_partial(self.path)
            for name, model in self.results.items():
                check_writable(self.path / name, self.job, model)
        speed = Throughput(self.ranks.device, devices=self.ranks.world_size)
        self.trainer = TrainStep(
            self.loss_module, self.settings, self.ranks, self.train_dataloader.micro_batches
        )
        position = self._restore()
        self.books = MetricsLogger(
            self.path,
            speed,
            steps=self.settings.max_steps,
            done=self.trainer.step,
            position=position,
            kept=self.ranks.is_main_process,
        )
        first = self.trainer.step
        try:
            while self.trainer.step < self.settings.max_steps:
                before = self.trainer.tokens
                if self.trainer.step in (first, self.settings.seq_len_warmup_steps):
                    speed.reset(self._flops_per_token())
                figures = self.trainer.train_step(self.train_dataloader.batches(self.trainer.step))
                speed.step(self.trainer.tokens - before)
                with speed.paused():
                    self._after(figures)
            self._finish()
        finally:
            self.books.report(now=True)
            self.books.close()
            self.train_dataloader.close()

    def _flops_per_token(self) -> float | None:
        """Count the work of a token of this step, on a device whose peak is worth comparing."""
        if self.ranks.device.type != "cuda":
            return None
        batch = self.train_dataloader.make_batches(self.trainer.step)[0]
        tensors = {name: tensor.to(self.ranks.device) for name, tensor in batch.tensors.items()}

        def loss() -> torch.Tensor:
            return torch.stack(list(self.loss_module(tensors).sums.values())).sum()

        return training_flops(loss, self.loss_module.parameters()) / batch.tokens

    def _after(self, figures: dict[str, float]) -> None:
        """Log, validate and save, where it is time to."""
        step, last = self.trainer.step, self.trainer.step == self.settings.max_steps
        asked = self.ranks.any(self.stop.received)
        if step % self.settings.logging_steps == 0 or last:
            found = self.trainer.totals.compute_and_reset(self.job.objective.loss_weights)
            self._write("train", {**found, **figures, "tokens": self.trainer.tokens})
        if step % self.settings.eval_steps == 0 or last:
            found = self.trainer.validate(self.eval_dataloader)
            if self.best is None or found["loss"] < self.best[0]:
                self.best = (found["loss"], step)
            self._write("validation", found)
        if step % self.settings.save_steps == 0 or last or asked:
            self._save()
        if asked and not last:
            raise Interrupted(
                f"interrupted; step {step} of {self.settings.max_steps} is saved",
                f"zoo pretrain --resume {self.path} goes on",
            )

    def _write(self, split: str, figures: dict[str, Any]) -> None:
        self.books.write({"step": self.trainer.step, "split": split, **figures})

    def _save(self) -> None:
        self.trainer.check_weights()
        state = CheckpointMeta(
            step=self.trainer.step,
            tokens=self.trainer.tokens,
            metrics_position=self.books.position(),
            metrics_digest=self.books.digest(),
            best=self.best,
            settings=settings_digest(self.settings),
        )
        save_checkpoint(self.path, state, trainer_state_dict(self.trainer), self.ranks)
        if self.ranks.is_main_process:
            best = None if self.best is None else self.best[1]
            prune_checkpoints(self.path, keep=self.settings.save_total_limit, best=best)
        self.books.report()

    def _restore(self) -> int:
        """Restore the last intact checkpoint, if there is one, and return its log's length."""
        saved = self.saved
        if saved is None or saved.meta.step == 0:  # that of step 0 holds initial weights alone
            return 0
        state = saved.meta
        load_trainer_state_dict(self.trainer, load_tensors(saved.path, state), saved)
        self.trainer.step, self.trainer.tokens, self.best = state.step, state.tokens, state.best
        return state.metrics_position

    def _finish(self) -> None:
        """Write what was trained, from the averaged weights where there are any."""
        if self.trainer.average is not None:
            self.trainer.average.copy_to(self.loss_module.model)
        training = {
            "objective": self.job.objective.name,
            "seed": self.settings.seed,
            "steps": self.trainer.step,
            "tokens": self.trainer.tokens,
            "corpus": {
                name: msgspec.to_builtins(split.files)
                for name, split in self.job.corpus.record.splits.items()
            },
            "best": self.best,
            "init_from": msgspec.to_builtins(self.pretrained),
        }
        for name, network in self.job.objective.models_to_save(self.loss_module.model).items():
            weights = {
                k: full_tensor(tensor).cpu()
                for k, tensor in unique_state_dict(network.module).items()
            }
            if self.ranks.is_main_process:
                save_final_model(self.path / name, self.job, network, weights, training)
