"""One run, from its first step or its last checkpoint to what it leaves behind."""

from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from zoo.errors import Interrupted
from zoo.training.books import Books
from zoo.training.feed import training_feed, validation_batches
from zoo.training.job import Job
from zoo.training.keeping import collect, give_back, parameters, set_parameters
from zoo.training.lesson import Lesson
from zoo.training.loop import Trainer
from zoo.training.origin import StartRecord
from zoo.training.ranks import Ranks
from zoo.training.recovery import Saved, last_intact
from zoo.training.result import check_result, model_file, write_result
from zoo.training.signals import Stop
from zoo.training.state import State, load_tensors, prune, save, settings_digest, tidy
from zoo.training.throughput import Throughput, training_flops
from zoo.training.wrapping import whole


class Run:
    """A run in one process.

    Args:
        job: what is to be done.
        path: the run's directory.
        ranks: the processes that share it.
        stop: says whether to end early.

    Raises:
        UsageError: the corpus has less than a batch.
    """

    def __init__(self, job: Job, path: Path, ranks: Ranks, stop: Stop) -> None:
        self.job, self.path, self.ranks, self.stop = job, path, ranks, stop
        self.settings = job.settings
        self.saved: Saved | None = last_intact(path, self.settings, ranks)
        torch.manual_seed(self.settings.seed)
        learner = job.objective.learner(job.family, job.config)
        self.start = self._set_out(learner)
        networks = job.objective.networks(learner).items()
        self.results = {name: model_file(job, network) for name, network in networks}
        self.lesson = Lesson(job.objective, learner.to(ranks.device))
        self.train = training_feed(job, ranks, done=self.saved.state.step if self.saved else 0)
        self.validation = validation_batches(job, ranks)
        self.best: tuple[float, int] | None = None

    def _set_out(self, learner: nn.Module) -> StartRecord | None:
        """Give a learner the weights that the run starts with, if they are not fresh ones."""
        origin, saved = self.job.origin, self.saved
        if origin is None:
            return None
        if saved is not None and saved.state.step == 0:
            groups = load_tensors(saved.path, saved.state)
            set_parameters(learner, groups.get("weights", {}), saved.path)
        return origin.record or origin.fill(self.job.objective, learner)

    def go(self) -> None:
        """Train to the last step, and write what was trained.

        Raises:
            Interrupted: a signal came; all is saved.
        """
        if self.ranks.first:  # and no other process is at work here
            tidy(self.path)
            for name, model in self.results.items():
                check_result(self.path / name, self.job, model)
        speed = Throughput(self.ranks.device, devices=self.ranks.count)
        self.trainer = Trainer(self.lesson, self.settings, self.ranks, self.train.micros)
        position = self._restore()
        self.books = Books(
            self.path,
            speed,
            steps=self.settings.steps,
            done=self.trainer.step,
            position=position,
            kept=self.ranks.first,
        )
        first = self.trainer.step
        try:
            while self.trainer.step < self.settings.steps:
                before = self.trainer.tokens
                if self.trainer.step in (first, self.settings.short_steps):
                    speed.turn(self._flops_per_token())
                figures = self.trainer.update(self.train.step(self.trainer.step))
                speed.step(self.trainer.tokens - before)
                with speed.paused():
                    self._after(figures)
            self._finish()
        finally:
            self.books.report(now=True)
            self.books.close()
            self.train.close()

    def _flops_per_token(self) -> float | None:
        """Count the work of a token of this step, on a device whose peak is worth comparing."""
        if self.ranks.device.type != "cuda":
            return None
        batch = self.train.make(self.trainer.step)[0]
        tensors = {name: tensor.to(self.ranks.device) for name, tensor in batch.tensors.items()}

        def loss() -> torch.Tensor:
            return torch.stack(list(self.lesson(tensors).sums.values())).sum()

        return training_flops(loss, self.lesson.parameters()) / batch.tokens

    def _after(self, figures: dict[str, float]) -> None:
        """Log, validate and save, where it is time to."""
        step, last = self.trainer.step, self.trainer.step == self.settings.steps
        asked = self.ranks.any(self.stop.asked)
        if step % self.settings.log_every == 0 or last:
            found = self.trainer.totals.read(self.job.objective.terms)
            self._write("train", {**found, **figures, "tokens": self.trainer.tokens})
        if step % self.settings.validate_every == 0 or last:
            found = self.trainer.validate(self.validation)
            if self.best is None or found["loss"] < self.best[0]:
                self.best = (found["loss"], step)
            self._write("validation", found)
        if step % self.settings.save_every == 0 or last or asked:
            self._save()
        if asked and not last:
            raise Interrupted(
                f"interrupted; step {step} of {self.settings.steps} is saved",
                f"zoo pretrain --resume {self.path} goes on",
            )

    def _write(self, split: str, figures: dict[str, Any]) -> None:
        self.books.write({"step": self.trainer.step, "split": split, **figures})

    def _save(self) -> None:
        self.trainer.check_weights()
        state = State(
            step=self.trainer.step,
            tokens=self.trainer.tokens,
            journal=self.books.position(),
            journal_digest=self.books.digest(),
            best=self.best,
            settings=settings_digest(self.settings),
        )
        save(self.path, state, collect(self.trainer), self.ranks)
        if self.ranks.first:
            best = None if self.best is None else self.best[1]
            prune(self.path, keep=self.settings.keep, best=best)
        self.books.report()

    def _restore(self) -> int:
        """Restore the last intact checkpoint, if there is one, and return its log's length."""
        saved = self.saved
        if saved is None or saved.state.step == 0:  # that of step 0 holds initial weights alone
            return 0
        state = saved.state
        give_back(self.trainer, load_tensors(saved.path, state), saved)
        self.trainer.step, self.trainer.tokens, self.best = state.step, state.tokens, state.best
        return state.journal

    def _finish(self) -> None:
        """Write what was trained, from the averaged weights where there are any."""
        if self.trainer.average is not None:
            self.trainer.average.copy_to(self.lesson.learner)
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
            "start": msgspec.to_builtins(self.start),
        }
        for name, network in self.job.objective.networks(self.lesson.learner).items():
            weights = {k: whole(tensor).cpu() for k, tensor in parameters(network.module).items()}
            if self.ranks.first:
                write_result(self.path / name, self.job, network, weights, training)
