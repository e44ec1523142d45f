"""A teacher's outputs computed before a run, by one of several processes that share the work."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from zoo.data.many_files.shard import FileShard
from zoo.distillation.setup import DistillSetup
from zoo.distillation.teachers.teacher_cache import MAX_SHARDS, TeacherShardRecord
from zoo.errors import UsageError
from zoo.io.progress import progress
from zoo.objectives.base import Batch, ExampleDataset
from zoo.training.config.run_config import RunConfig
from zoo.training.dataloader import BatchLoader
from zoo.training.devices import deterministic_algorithms
from zoo.training.directory import as_json_values
from zoo.training.distributed.context import DistContext
from zoo.training.state.location import without_locations
from zoo.training.trainer import autocast


@dataclass(frozen=True)
class TeacherShard:
    """What a process has computed of a teacher's outputs.

    Attributes:
        directory: directory of the cache.
        shard: the part, as ``--shard`` takes it.
        outputs: number of outputs that were added, of all teachers.
        was_complete: whether nothing was left to compute.
        missing: the shards that are not complete yet.
    """

    directory: Path
    shard: str
    outputs: int
    was_complete: bool
    missing: Sequence[str]


def compute_shard(setup: DistillSetup, shard: FileShard, dist: DistContext) -> TeacherShard:
    """Compute a shard of the outputs that a run in one process would add to its cache.

    Each shard has a contiguous part of the micro-batches of the first pass over the data, and of
    the evaluation that follows the step of ``eval_steps``. A teacher therefore reads the same
    micro-batches as in a run, and computes the same numbers.

    Args:
        setup: setup of the run.
        shard: the shard.
        dist: this process, the only one of the run.

    Raises:
        UsageError: there is no cache, or it has outputs of another teacher or job.
    """
    teachers = setup.objective.cached_teachers
    if not teachers:
        raise UsageError(
            "--shard computes outputs of the teacher, and nothing keeps them",
            "name a directory with --cache-teacher",
        )
    if dist.world_size > 1:
        raise UsageError(
            "--shard runs in one process, and torchrun started several",
            "start one command for each shard",
        )
    if shard.count > MAX_SHARDS:
        raise UsageError(f"--shard {shard}: there can be {MAX_SHARDS:,} shards", "give fewer")
    record = TeacherShardRecord(
        number=shard.number,
        count=shard.count,
        inputs=sorted(setup.base.input_digests().values()),
        settings=as_json_values(without_locations(msgspec.to_builtins(setup.config))),
    )
    caches = [teacher.cache for teacher in teachers]
    kernels = deterministic_algorithms(setup.config.deterministic)
    was_complete = True
    try:
        for cache in caches:
            # All caches are opened, so that an error comes before any work.
            was_complete = cache.open_shard(record) and was_complete
        if not was_complete:
            with kernels, torch.no_grad(), autocast(setup.config, dist.device):
                _add_outputs(setup, shard, dist)
            for cache in caches:
                cache.complete_shard()
    finally:
        for cache in caches:
            cache.close()
    return TeacherShard(
        Path(str(setup.config.distillation.cache_teacher)),
        str(shard),
        sum(cache.added for cache in caches),
        was_complete,
        caches[0].missing_shards(),
    )


@dataclass(frozen=True)
class TrainingStep:
    """The micro-batches of a step, counted from 0."""

    step: int


@dataclass(frozen=True)
class EvaluationBatch:
    """A batch of held-out data."""

    index: int


Unit = TrainingStep | EvaluationBatch


def units_of_work(loader: BatchLoader, config: RunConfig, eval_count: int) -> list[Unit]:
    """Return what a run reads in its first pass over the data, in the order in which it does.

    Args:
        loader: loader of the training data.
        config: configuration of the run.
        eval_count: number of batches of an evaluation.

    Raises:
        UsageError: the data is a stream.
    """
    if not isinstance(loader.dataset, ExampleDataset):
        raise UsageError(
            "--shard needs data with a known number of rows, and a stream has none",
            "build a corpus with `zoo corpus build`, and train on it",
        )
    last_step = loader.first_step + -(-len(loader.dataset) // loader.global_batch_size)
    steps = min(config.max_steps, last_step)
    first_evaluation = min(config.eval_steps, config.max_steps)
    units: list[Unit] = [TrainingStep(step) for step in range(min(steps, first_evaluation))]
    units += [EvaluationBatch(index) for index in range(eval_count)]
    units += [TrainingStep(step) for step in range(first_evaluation, steps)]
    return units


def _add_outputs(setup: DistillSetup, shard: FileShard, dist: DistContext) -> None:
    """Run the teachers on the part of the data that belongs to a shard."""
    layers = setup.objective.captured_layers("teacher")
    loader = setup.train_dataloader(dist)
    try:
        eval_batches = setup.eval_batches(dist)
        units = units_of_work(loader, setup.config, len(eval_batches))
        start = len(units) * (shard.number - 1) // shard.count
        end = len(units) * shard.number // shard.count
        label = f"running the teacher, shard {shard}"
        with progress(label, end - start, unit="batches") as advance:
            for unit in units[start:end]:
                batches: Sequence[Batch]
                match unit:
                    case TrainingStep(step):
                        batches = loader.make_batches(step)
                    case EvaluationBatch(index):
                        batches = [eval_batches[index]]
                for batch in batches:
                    tensors = {n: tensor.to(dist.device) for n, tensor in batch.tensors.items()}
                    for teacher in setup.objective.cached_teachers:
                        teacher.run(tensors, layers)
                advance(1)
    finally:
        loader.close()
