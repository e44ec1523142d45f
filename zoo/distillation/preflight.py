"""Before a run: warnings about untrained teachers, and an estimate of how long it will take."""

import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from zoo.checkpoint.records import MappingRecord
from zoo.distillation.objective import Distillation
from zoo.distillation.teachers.teacher import Teacher
from zoo.distillation.teachers.teacher_cache import TeacherCache
from zoo.finetuning.class_losses import fitted_weights, weigh_labels
from zoo.finetuning.objective import FineTuning
from zoo.finetuning.setup import FineTuneSetup
from zoo.finetuning.task import LABELS
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.overrides import override
from zoo.training.base import RunSetup
from zoo.training.logging.report import format_duration
from zoo.training.setup import PretrainSetup
from zoo.training.trainer import Callback, Trainer, autocast

if TYPE_CHECKING:
    from numpy.typing import NDArray


LOG = logging.getLogger("zoo")
FEWEST = 40  # micro-batches of a run that is worth a measurement
QUICK = 1.0  # seconds; what takes less is measured again, without what the first pass allocates
STEPS_MEASURED = 5  # after the first one, which compiles the model
LONGEST_MEASUREMENT = 60.0  # seconds; fewer steps are measured where they take longer
LABELS_READ = 500  # of the held-out data
TOKENS_READ = 1 << 21  # of the training text
ONE_CLASS = "single_label_classification"


class Preflight(Callback):
    """Logs the expected time and warns about teachers, in the main process only."""

    def __init__(
        self, base: RunSetup, objective: Distillation, *, stage: str | None, announce: bool
    ) -> None:
        self.base = base
        self.objective = objective
        self.stage = stage
        self.announce = announce
        self._steps: StepTimes | None = None

    @override
    def on_train_begin(self, trainer: Trainer) -> None:
        if not trainer.dist.is_main_process:
            return
        if self.announce:
            for teacher in self.objective.teachers:
                warn_about_new_weights(teacher)
            for scored in self.objective.scored_teachers(self.base):
                if scored is not None:
                    warn_about_loss(scored, self.base, trainer)
        if micro_batches_left(trainer) < FEWEST:
            return
        seconds = expected_seconds(trainer, self.objective)
        if seconds is None:
            self._steps = StepTimes([teacher.cache for teacher in self.objective.cached_teachers])
        else:
            self._log(trainer, seconds, "by one micro-batch")

    @override
    def on_step_begin(self, trainer: Trainer) -> None:
        if self._steps is not None:
            self._steps.begin()

    @override
    def on_step_end(self, trainer: Trainer) -> None:
        """Log the expected time of the remaining steps once enough were timed."""
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

    def _log(self, trainer: Trainer, seconds: float, source: str) -> None:
        LOG.info(
            "%s steps%s take about %s on %s, %s",
            f"{trainer.config.max_steps - trainer.step:,}",
            f" of the stage {self.stage}" if self.stage else "",
            format_duration(seconds),
            trainer.dist.device,
            source,
        )


class StepTimes:
    """Durations of the first steps, in seconds, including batches and updates."""

    def __init__(self, caches: Sequence[TeacherCache]) -> None:
        self._caches = caches
        self._seconds = list[float]()

    def begin(self) -> None:
        """Start timing a step."""
        self._added = sum(cache.added for cache in self._caches)
        self._start = time.perf_counter()

    def end(self) -> None:
        """Stop timing the step."""
        self._seconds.append(time.perf_counter() - self._start)

    def median(self) -> float | None:
        """Return the median of the steps after the first; ``None`` while more are needed."""
        seconds = self._seconds[1:]  # a median, since later steps may compile further shapes
        if not seconds or (len(seconds) < STEPS_MEASURED and sum(seconds) < LONGEST_MEASUREMENT):
            return None
        return statistics.median(seconds)

    def computes_cached_outputs(self) -> bool:
        """Return whether the last step ran a teacher because the cache lacked its outputs."""
        return sum(cache.added for cache in self._caches) > self._added


def micro_batches_left(trainer: Trainer) -> int:
    """Return the number of micro-batches that this process has yet to run."""
    steps = trainer.config.max_steps - trainer.step
    return trainer.train_dataloader.micro_batch_count(trainer.step) * steps


def expected_seconds(trainer: Trainer, objective: Distillation) -> float | None:
    """Return the expected seconds of the remaining steps, from one micro-batch of the next step."""
    # The estimate comes from timing one micro-batch. If the model is compiled or sharded, or the
    # teacher's outputs are cached, it comes from the first steps instead.
    #
    # Weights, gradients, recurrent states and random generators do not change. The estimate
    # excludes updates, evaluations and checkpoints. ``None`` if a measurement would change the run.
    config = trainer.config
    sharded = config.fsdp and trainer.dist.world_size > 1
    # a pass would compile the model, wait for other processes, or write to the cache
    if config.compile or sharded or objective.cached_teachers:
        return None
    batch = trainer.train_dataloader.middle_micro_batch(trainer.step)
    tensors = {name: tensor.to(trainer.dist.device) for name, tensor in batch.tensors.items()}
    seconds = _time_pass(trainer, tensors, batch.counts)
    if seconds < QUICK:
        seconds = _time_pass(trainer, tensors, batch.counts)
    return seconds * micro_batches_left(trainer)


def _time_pass(
    trainer: Trainer, tensors: Mapping[str, Tensor], counts: Mapping[str, float]
) -> float:
    """Time a forward and backward pass, in seconds, without accumulating gradients."""
    module = trainer.loss_module.train()
    device = trainer.dist.device
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
    """Warn about a teacher that got randomly initialized tensors when it was converted."""
    new = teacher.checkpoint.read_part("account", MappingRecord).initialised
    if new:
        LOG.warning(
            "warning: %s tensors of the teacher %s have random weights, such as %s",
            len(new),
            teacher.reference,
            new[0],
        )


def warn_about_loss(teacher: Teacher, base: RunSetup, trainer: Trainer) -> None:
    """Warn about a teacher that predicts held-out data no better than label frequencies do."""
    # Such a teacher has random weights, or was trained for only a few steps.
    frequencies = label_frequencies(base)
    if frequencies is None:
        return
    loss = 0.0
    chance = 0.0
    labels = 0.0
    for batch in trainer.eval_batches:
        tensors = {name: tensor.to(trainer.dist.device) for name, tensor in batch.tensors.items()}
        view = teacher.forward(tensors, {})
        if LABELS not in view.batch or len(view.objective.scored_terms) != 1:
            return
        targets = view.batch[LABELS][view.batch[LABELS] != IGNORED].cpu().numpy()
        with torch.no_grad():
            output = view.objective.loss(view.outputs, view.batch)
        loss += float(output.sums[view.objective.scored_terms[0]])
        class_weights = None
        if isinstance(view.objective, FineTuning):
            class_weights = fitted_weights(view.objective.context)
        weights = weigh_labels(targets, class_weights)
        chance -= float((weights * np.log(frequencies[targets])).sum())
        labels += float(weights.sum())
        if labels >= LABELS_READ:
            break
    if labels and loss >= chance:
        LOG.warning(
            "warning: the teacher %s predicts held-out data no better than label frequencies do: "
            "its loss is %.3f, and theirs is %.3f; was it trained?",
            teacher.reference,
            loss / labels,
            chance / labels,
        )


def label_frequencies(base: RunSetup) -> "NDArray[np.float64] | None":
    """Return the frequency of each token or class in the training data, (classes,)."""
    # Counts start at one, so that no frequency is 0. ``None`` if the labels are not classes.
    labels: Any
    if isinstance(base, PretrainSetup):
        shards = []
        for corpus in base.sources.values() or [base.corpus]:
            shards += corpus.split("train").shards
        labels = np.concatenate([shard[: TOKENS_READ // len(shards)] for shard in shards])
        size = cast(Any, base.model_config).vocab_size
    elif isinstance(base, FineTuneSetup) and base.objective.problem == ONE_CLASS:
        labels = base.train_rows.values[LABELS]
        size = len(base.objective.labels)
    else:
        return None
    counts = np.bincount(labels, minlength=size) + 1
    frequencies: NDArray[np.float64] = counts.astype(np.float64) / counts.sum()
    return frequencies
