"""Estimate of the time of a run, and warnings about untrained teachers, before it begins.

The estimate of a run whose model is compiled or sharded, or whose teacher's outputs are cached, is
made of its first steps.
"""

import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from zoo.checkpoint.records import MappingRecord
from zoo.distillation.scoring.evaluation import scored_teachers
from zoo.distillation.teachers.teacher import Teacher
from zoo.distillation.teachers.teacher_cache import TeacherCache
from zoo.finetuning.base import LABELS
from zoo.finetuning.labels import ClassTask
from zoo.finetuning.setup import FineTuneSetup
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.overrides import override
from zoo.training.callbacks import Callback
from zoo.training.logging.report import format_duration
from zoo.training.setup import TrainSetup
from zoo.training.trainer import autocast

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.distillation.setup import DistillSetup
    from zoo.training.trainer import Trainer

LOG = logging.getLogger("zoo")
FEWEST = 40  # micro-batches of a run that is worth a measurement
QUICK = 1.0  # seconds; what takes less is measured again, without what the first pass allocates
STEPS_MEASURED = 5  # after the first one, which compiles the model
LONGEST_MEASUREMENT = 60.0  # seconds; fewer steps are measured where they take longer
LABELS_READ = 500  # of the held-out data
TOKENS_READ = 1 << 21  # of the training text
ONE_CLASS = "single_label_classification"


class Preflight(Callback):
    """Logs the expected time, and warns about teachers; in the main process alone."""

    def __init__(self, setup: "DistillSetup") -> None:
        self.setup = setup
        self._steps: StepTimes | None = None

    @override
    def on_train_begin(self, trainer: "Trainer") -> None:
        if not trainer.dist.is_main_process:
            return
        if self.setup.announce:
            for teacher in self.setup.objective.teachers:
                warn_about_new_weights(teacher)
            for scored in scored_teachers(self.setup):
                if scored is not None:
                    warn_about_loss(scored, self.setup, trainer)
        if micro_batches_left(trainer) < FEWEST:
            return
        seconds = expected_seconds(trainer, self.setup)
        if seconds is None:
            self._steps = StepTimes([teacher.cache for teacher in self.setup.cached_teachers()])
        else:
            self._log(trainer, seconds, "by one micro-batch")

    @override
    def on_step_begin(self, trainer: "Trainer") -> None:
        if self._steps is not None:
            self._steps.begin()

    @override
    def on_step_end(self, trainer: "Trainer") -> None:
        """After some steps, log the time of the others."""
        if self._steps is None:
            return
        self._steps.end()
        seconds = self._steps.median()
        if seconds is None:
            return
        remaining = trainer.config.max_steps - trainer.step
        source = "by the first steps"
        if self._steps.computes_cached_outputs():
            source += "; less once the teacher's outputs are in the cache"
        if remaining:
            self._log(trainer, seconds * remaining, source)
        self._steps = None

    def _log(self, trainer: "Trainer", seconds: float, source: str) -> None:
        stage = self.setup.config.distillation.stage
        LOG.info(
            "%s steps%s take about %s on %s, %s",
            f"{trainer.config.max_steps - trainer.step:,}",
            f" of the stage {stage}" if stage else "",
            format_duration(seconds),
            trainer.dist.device,
            source,
        )


class StepTimes:
    """Seconds of the first steps of a process, with their batches and updates."""

    def __init__(self, caches: Sequence[TeacherCache]) -> None:
        self._caches, self._seconds = caches, list[float]()

    def begin(self) -> None:
        """Start the time of a step."""
        self._added = sum(cache.added for cache in self._caches)
        self._start = time.perf_counter()

    def end(self) -> None:
        """Stop the time of a step."""
        self._seconds.append(time.perf_counter() - self._start)

    def median(self) -> float | None:
        """Return the median of the steps after the first one; ``None`` as long as more are needed.

        The median leaves out a step that compiles the model for another shape.
        """
        seconds = self._seconds[1:]
        if not seconds or (len(seconds) < STEPS_MEASURED and sum(seconds) < LONGEST_MEASUREMENT):
            return None
        return statistics.median(seconds)

    def computes_cached_outputs(self) -> bool:
        """Return whether the teachers ran in the last step, for want of outputs in a cache."""
        return sum(cache.added for cache in self._caches) > self._added


def micro_batches_left(trainer: "Trainer") -> int:
    """Return the number of micro-batches of the remaining steps of this process."""
    steps = trainer.config.max_steps - trainer.step
    return trainer.train_dataloader.micro_batch_count(trainer.step) * steps


def expected_seconds(trainer: "Trainer", setup: "DistillSetup") -> float | None:
    """Return the expected seconds of the remaining steps, by a micro-batch of the next one.

    Weights, gradients, recurrent states and random generators stay as they are. Updates,
    evaluations and checkpoints are not in it.
    """
    config = trainer.config
    sharded = config.fsdp and trainer.dist.world_size > 1
    if config.compile or sharded or setup.cached_teachers():
        return None
    batch = trainer.train_dataloader.middle_micro_batch(trainer.step)
    tensors = {name: tensor.to(trainer.dist.device) for name, tensor in batch.tensors.items()}
    seconds = _time_pass(trainer, tensors, batch.counts)
    if seconds < QUICK:
        seconds = _time_pass(trainer, tensors, batch.counts)
    return seconds * micro_batches_left(trainer)


def _time_pass(
    trainer: "Trainer", tensors: Mapping[str, Tensor], counts: Mapping[str, float]
) -> float:
    """Return the seconds of a forward and backward pass; no gradient is accumulated."""
    module, device = trainer.loss_module.train(), trainer.dist.device
    module.objective.begin_step(trainer.model, trainer.step, trainer.config.max_steps)
    parameters = [p for p in module.parameters() if p.requires_grad]
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        start = time.perf_counter()
        with autocast(trainer.config, device):
            output = module(tensors)
        loss = trainer.total_loss(output, counts)
        torch.autograd.grad(loss, parameters, allow_unused=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start


def warn_about_new_weights(teacher: Teacher) -> None:
    """Warn about a teacher some of whose tensors were new when it was converted."""
    new = teacher.checkpoint.read_part("account", MappingRecord).initialised
    if new:
        LOG.warning(
            "warning: %s tensors of the teacher %s have random weights, such as %s",
            len(new),
            teacher.reference,
            new[0],
        )


def warn_about_loss(teacher: Teacher, setup: "DistillSetup", trainer: "Trainer") -> None:
    """Warn about a teacher that predicts held-out data no better than frequencies do.

    Frequencies are those of the tokens of the training text, or of the classes of the training
    data. Such a teacher has random weights, or was trained for a few steps.
    """
    frequencies = label_frequencies(setup)
    if frequencies is None:
        return
    loss, chance, labels = 0.0, 0.0, 0.0
    for batch in trainer.eval_batches:
        tensors = {name: tensor.to(trainer.dist.device) for name, tensor in batch.tensors.items()}
        view = teacher.forward(tensors, {})
        if LABELS not in view.batch or len(view.objective.scored_terms) != 1:
            return
        targets = view.batch[LABELS][view.batch[LABELS] != IGNORED].cpu().numpy()
        with torch.no_grad():
            output = view.objective.loss(view.outputs, view.batch)
        loss += float(output.sums[view.objective.scored_terms[0]])
        task = view.objective
        weights = task.weigh(targets) if isinstance(task, ClassTask) else np.ones(len(targets))
        chance -= float((weights * np.log(frequencies[targets])).sum())
        labels += float(weights.sum())
        if labels >= LABELS_READ:
            break
    if labels and loss >= chance:
        LOG.warning(
            "warning: the teacher %s predicts held-out data no better than frequencies do: its "
            "loss is %.3f, and theirs %.3f; was it trained?",
            teacher.reference,
            loss / labels,
            chance / labels,
        )


def label_frequencies(setup: "DistillSetup") -> "NDArray[np.float64] | None":
    """Return the frequency of each token, or class, in the training data.

    From counts that are one higher, so that none is 0; ``None`` where labels are no classes.
    """
    base: Any = setup.base
    if isinstance(base, TrainSetup):
        shards = base.corpus.split("train").shards
        labels = np.concatenate([shard[: TOKENS_READ // len(shards)] for shard in shards])
        size = cast(Any, base.model_config).vocab_size
    elif isinstance(base, FineTuneSetup) and base.objective.problem == ONE_CLASS:
        labels, size = base.train_rows.values[LABELS], len(base.objective.labels)
    else:
        return None
    counts = np.bincount(labels, minlength=size) + 1
    frequencies: NDArray[np.float64] = counts.astype(np.float64) / counts.sum()
    return frequencies
