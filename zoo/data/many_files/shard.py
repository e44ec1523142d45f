"""Shards of a job: which of its files one of several processes computes."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from zoo.errors import UsageError
from zoo.io.numbers import parse_int

Item = TypeVar("Item")
SLURM = "slurm"
KUBERNETES = "kubernetes"
FORMS = f"K/N such as 1/4, {SLURM}, or {KUBERNETES}/N"
_NUMBERS = re.compile(r"([0-9]+)/([0-9]+)")


@dataclass(frozen=True)
class FileShard:
    """One of several parts of a job."""

    number: int  # from 1 to ``count``
    count: int

    def select(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return every ``count``-th item, from the one with the shard's number."""
        return items[self.number - 1 :: self.count]

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


WHOLE_JOB = FileShard(1, 1)


def parse_shard(text: str | None, environment: Mapping[str, str] = os.environ) -> FileShard:
    """Return the shard that an option names.

    Slurm numbers the tasks of an array as its user likes, and Kubernetes the pods of an indexed job
    from 0. A number that is passed on is therefore easily off by one; ``slurm`` and
    ``kubernetes/N`` read the variables of both, and count right.

    Args:
        text: ``K/N``, counted from 1; ``slurm``; ``kubernetes/N``; ``None`` for the whole job.
        environment: the variables of the environment.

    Raises:
        UsageError: the text is malformed, there is no such shard, or a variable is missing.
    """
    if text is None:
        return WHOLE_JOB
    if text == SLURM:
        return _slurm_shard(environment)
    name, separator, count_text = text.partition("/")
    if name == KUBERNETES and separator:
        return _kubernetes_shard(text, parse_int(count_text), environment)
    match = _NUMBERS.fullmatch(text)
    if match is None or int(match[2]) == 0:
        raise UsageError(f"--shard is {text!r}", f"it takes {FORMS}")
    shard = FileShard(int(match[1]), int(match[2]))
    if shard.number == 0:
        raise UsageError(
            f"--shard {text}: shards are counted from 1, so the first is 1/{shard.count}",
            f"--shard {SLURM} takes an array with any numbers, and {KUBERNETES}/{shard.count} the "
            "index of a pod, which begins at 0",
        )
    return _require_shard(text, shard)


def _slurm_shard(environment: Mapping[str, str]) -> FileShard:
    task = _variable(SLURM, "SLURM_ARRAY_TASK_ID", environment)
    count = _variable(SLURM, "SLURM_ARRAY_TASK_COUNT", environment)
    first = _variable(SLURM, "SLURM_ARRAY_TASK_MIN", environment)
    last = _variable(SLURM, "SLURM_ARRAY_TASK_MAX", environment)
    step = max((last - first) // max(count - 1, 1), 1)
    tasks = range(first, first + step * count, step)
    if last != tasks[-1] or task not in tasks:
        raise UsageError(
            f"--shard {SLURM}: the array has {count} tasks from {first} to {last}, with gaps",
            f"submit an array without gaps, such as --array=1-{count}",
        )
    return FileShard(tasks.index(task) + 1, count)


def _kubernetes_shard(text: str, count: int | None, environment: Mapping[str, str]) -> FileShard:
    if count is None or count < 1:
        raise UsageError(f"--shard is {text!r}", f"it takes {FORMS}")
    index = _variable(text, "JOB_COMPLETION_INDEX", environment)
    return _require_shard(text, FileShard(index + 1, count))


def _variable(text: str, name: str, environment: Mapping[str, str]) -> int:
    """Return the number that a variable of the environment holds."""
    value = environment.get(name)
    if value is None:
        job = "a task of a Slurm array" if text == SLURM else "a pod of an indexed job"
        raise UsageError(
            f"--shard {text}: {name} is not set, so this is not {job}", "give --shard K/N"
        )
    number = parse_int(value)
    is_count = name.endswith("COUNT")
    if number is None or number < 0 or (is_count and number == 0):
        raise UsageError(f"--shard {text}: {name} is {value!r}, not a number", "give --shard K/N")
    return number


def _require_shard(text: str, shard: FileShard) -> FileShard:
    if not 1 <= shard.number <= shard.count:
        raise UsageError(
            f"--shard {text}: there is no shard {shard.number} of {shard.count}",
            f"they are 1/{shard.count} to {shard.count}/{shard.count}",
        )
    return shard
