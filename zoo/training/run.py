"""A run from start to end: its directory, its checkpoints, and what it leaves behind."""

import logging
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

import zoo
from zoo.checkpoint import Record, encode
from zoo.errors import SourceError, UsageError
from zoo.publish import publishing
from zoo.training.bar import Show, training_bar
from zoo.training.feed import Feed
from zoo.training.job import Job, corpus_rows, prepare
from zoo.training.journal import Journal
from zoo.training.keeping import collect, give_back, parameters
from zoo.training.lesson import Lesson
from zoo.training.loop import Trainer
from zoo.training.ranks import Ranks
from zoo.training.report import write_report
from zoo.training.result import write_result
from zoo.training.settings import Settings, differences, gather, merged, read_file, typed
from zoo.training.signals import Stop, stopping
from zoo.training.state import State, checkpoints, load, prune, save
from zoo.training.throughput import Throughput

SETTINGS, MANIFEST = "config.yaml", "run.json"
LOG = logging.getLogger("zoo")


class RunRecord(Record):
    """``run.json``: what a run is, beside its settings.

    Attributes:
        zoo: version of the distribution that began it.
        command: what was typed.
        corpus: the corpus's directory.
        corpus_digest: of its manifest, which has those of all its files.
        parameters: how many weights are trained.
        environment: versions and devices.
    """

    zoo: str
    command: list[str]
    corpus: str
    corpus_digest: str
    parameters: int
    environment: dict[str, str]


class Interrupted(Exception):
    """A signal asked the run to stop; it was saved."""


def begin(
    tree: Mapping[str, Any],
    changes: Mapping[str, Any],
    output: Path | None,
    ranks: Ranks,
    *,
    offline: bool = False,
) -> tuple[Path, Path]:
    """Begin a run and see it through.

    Args:
        tree: settings of a file, or the family's name alone.
        changes: settings that take the place of those.
        output: the run's directory, by default ``runs/FAMILY-SIZE`` with the next free number.
        ranks: the processes that share the work.
        offline: open no connection.

    Returns:
        the run's directory, and the checkpoint of what was trained.

    Raises:
        Interrupted: a signal came. All is saved.
        UsageError: the settings do not go together, or the directory exists or cannot be written.
        VerificationError: a number was not finite.
        SourceError: what is read is missing.
    """
    settings = gather(tree, changes)
    path = Path(ranks.agree(str(output or _free_path(settings))))
    if ranks.first and path.exists():
        raise UsageError(f"{path} exists", f"`zoo pretrain --resume {path}`, or another -o")
    return path, _see_through(settings, path, ranks, offline=offline)


def resume_(
    path: Path,
    tree: Mapping[str, Any],
    changes: Mapping[str, Any],
    ranks: Ranks,
    *,
    offline: bool = False,
) -> Path:
    """Go on with a run from its last checkpoint; see ``begin``.

    Raises:
        UsageError: other settings are given than the run began with; the differences are named.
        VerificationError: a checkpoint is damaged.
        SourceError: there is no run.
    """
    if not (path / SETTINGS).is_file():
        raise SourceError(f"{path} is not a run: it has no {SETTINGS}", "give a run's directory")
    stored = read_file(path / SETTINGS)
    settings = typed(stored, str(path / SETTINGS))
    before = msgspec.to_builtins(settings)
    changed = list(differences(before, msgspec.to_builtins(typed(merged(before, tree, changes)))))
    if changed:
        raise UsageError(
            f"{path} began with other settings: {'; '.join(changed)}",
            "resume without changes, or begin another run",
        )
    return _see_through(settings, path, ranks, offline=offline)


def _free_path(settings: Settings) -> Path:
    base = Path("runs") / f"{settings.family}-{settings.size}"
    number = 1
    while (path := base if number == 1 else base.with_name(f"{base.name}-{number}")).exists():
        number += 1
    return path


def _see_through(settings: Settings, path: Path, ranks: Ranks, *, offline: bool) -> Path:
    job = prepare(settings, offline=offline)
    with stopping() as stop:
        run = Run(job, path, ranks, stop)
        try:
            run.go()
        finally:
            run.close()
    return path / "model"


class Run:
    """One run in one process.

    Args:
        job: what is to be done.
        path: the run's directory.
        ranks: the processes that share it.
        stop: says whether to end early.
    """

    def __init__(self, job: Job, path: Path, ranks: Ranks, stop: Stop) -> None:
        self.job, self.path, self.ranks, self.stop = job, path, ranks, stop
        self.settings = job.settings
        if self.settings.rows % ranks.count:
            raise UsageError(
                f"{self.settings.rows} rows a step do not split into {ranks.count} processes",
                "choose --batch-tokens so that they do",
            )
        torch.manual_seed(self.settings.seed)
        learner = job.objective.learner(job.family, job.config).to(ranks.device)
        self.lesson = Lesson(job.objective, learner)
        self.train = self._feed("train")
        self.validation = self._feed("validation").make(0)
        if ranks.first and not path.exists():
            self._begin()
        ranks.wait()
        self.trainer = Trainer(self.lesson, self.settings, ranks, self.train.micros)
        self.journal = Journal(path) if ranks.first else None
        self.best: tuple[float, int] | None = None
        self.speed = Throughput(ranks.device, devices=ranks.count)

    def _feed(self, split: str) -> Feed:
        """Lay out a split. The rows of validation that are looked at are one step."""
        training = split == "train"
        rows = corpus_rows(self.job, split, self.settings.rows if training else 1)
        wanted = min(len(rows), self.settings.validation_rows)
        shared = training or wanted % self.ranks.count == 0  # else each process looks at all
        return Feed(
            self.job.objective,
            rows,
            seed=self.settings.seed,
            per_step=self.settings.rows if training else wanted,
            per_micro=self.settings.micro_rows,
            rank=self.ranks.rank if shared else 0,
            ranks=self.ranks.count if shared else 1,
            purpose=split,
        )

    def _begin(self) -> None:
        """Make the directory."""
        import yaml

        from zoo.convert.write import digest
        from zoo.data.corpus import MANIFEST as CORPUS

        corpus = self.job.corpus.path
        record = RunRecord(
            zoo=zoo.__version__,
            command=["zoo", *sys.argv[1:]],
            corpus=str(corpus.resolve()),
            corpus_digest=digest(corpus / CORPUS).blake3,
            parameters=sum(p.numel() for p in self.lesson.parameters()),
            environment={
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "device": str(self.ranks.device),
                "processes": str(self.ranks.count),
            },
        )
        tree = msgspec.to_builtins(self.settings)
        with publishing(self.path) as staging:
            text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
            (staging / SETTINGS).write_text(text, encoding="utf-8")
            (staging / MANIFEST).write_bytes(encode(record))

    def go(self) -> None:
        """Train from the last checkpoint, or from the start, to the last step."""
        self._restore()
        with training_bar(self.settings.steps, self.trainer.step) as show:
            while self.trainer.step < self.settings.steps:
                before = self.trainer.tokens
                figures = self.trainer.update(self.train.step(self.trainer.step))
                self.speed.step(self.trainer.tokens - before)
                with self.speed.paused():
                    self._after(figures, show)
        self._finish()

    def _after(self, figures: dict[str, float], show: Show) -> None:
        """Log, validate and save, where it is time to."""
        step, last = self.trainer.step, self.trainer.step == self.settings.steps
        asked = self.ranks.any(self.stop.asked)
        if step % self.settings.log_every == 0 or last:
            found = self.trainer.totals.read(self.job.objective.terms)
            self._log({"split": "train", **found, **figures, "tokens": self.trainer.tokens}, show)
        if step % self.settings.validate_every == 0 or last:
            self._validate(show)
        if step % self.settings.save_every == 0 or last or asked:
            self._save()
        if asked and not last:
            raise Interrupted

    def _validate(self, show: Show) -> None:
        found = self.trainer.validate(self.validation)
        if self.best is None or found["loss"] < self.best[0]:
            self.best = (found["loss"], self.trainer.step)
        self._log({"split": "validation", **found}, show)

    def _log(self, record: Mapping[str, Any], show: Show) -> None:
        if self.journal is None:
            return
        record = {"step": self.trainer.step, **record}
        self.journal.write(record)
        speed = {}
        if record["split"] == "train":
            speed = self.speed.record(self.trainer.step)
            self.journal.speed(speed)
        show(record, speed)

    def _save(self) -> None:
        groups = collect(self.trainer)
        if self.journal is None:
            return
        state = State(
            step=self.trainer.step,
            tokens=self.trainer.tokens,
            journal=self.journal.position(),
            best=self.best,
        )
        save(self.path, state, groups)
        best = None if self.best is None else self.best[1]
        prune(self.path, keep=self.settings.keep, best=best)
        write_report(self.path)

    def _restore(self) -> None:
        """Go back to the last checkpoint, or to the start where there is none."""
        found = checkpoints(self.path)
        state = State(step=0)
        if found:
            where = list(found.values())[-1]
            state, groups = load(where)
            give_back(self.trainer, groups, where)
            self.trainer.step, self.trainer.tokens = state.step, state.tokens
            self.best = state.best
        if self.journal is not None:
            self.journal.truncate(state.journal)

    def _finish(self) -> None:
        """Write what was trained, from the averaged weights where there are any."""
        if self.trainer.average is not None:
            self.trainer.average.copy_to(self.lesson.learner)
        if not self.ranks.first:
            return
        training = {
            "objective": self.job.objective.name,
            "seed": self.settings.seed,
            "steps": self.trainer.step,
            "tokens": self.trainer.tokens,
            "corpus": self.job.corpus.record.tokenizer_digest,
            "best": self.best,
        }
        for name, network in self.job.objective.networks(self.lesson.learner).items():
            weights = parameters(network.module)
            write_result(self.path / name, self.job, network, weights, training)
        write_report(self.path)

    def close(self) -> None:
        """Stop preparing batches, and close the log."""
        self.train.close()
        if self.journal is not None:
            self.journal.close()
