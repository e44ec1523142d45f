"""Shards: every file belongs to exactly one, whatever numbers its cluster gives."""

import pytest

from zoo.data.many_files.shard import FileShard, parse_shard
from zoo.errors import UsageError


@pytest.mark.parametrize("count", [1, 2, 3, 7, 60])
def test_each_item_is_in_one_shard(count: int) -> None:
    items = list(range(50))
    shards = [FileShard(number, count).select(items) for number in range(1, count + 1)]
    assert sorted(item for shard in shards for item in shard) == items
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_a_shard_is_counted_from_one() -> None:
    assert parse_shard(None) == FileShard(1, 1)
    assert parse_shard("1/4") == FileShard(1, 4)
    assert parse_shard("4/4") == FileShard(4, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3/2", "there is no shard 3 of 2; they are 1/2 to 2/2"),
        ("0/4", "shards are counted from 1, so the first is 1/4; --shard slurm takes"),
        ("1/0", "--shard is '1/0'; it takes K/N"),
        ("0/0", "--shard is '0/0'; it takes K/N"),
        ("-1/4", "it takes K/N"),
        ("1", "it takes K/N"),
        ("1/4/2", "it takes K/N"),
        ("kubernetes", "it takes K/N"),
        ("kubernetes/0", "it takes K/N"),
        ("slurm", "SLURM_ARRAY_TASK_ID is not set, so this is not a task of a Slurm array"),
        ("kubernetes/4", "JOB_COMPLETION_INDEX is not set, so this is not a pod"),
    ],
)
def test_a_wrong_shard_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_shard(text, {})
    assert message in str(error.value)


def slurm(task: int, first: int, last: int, count: int) -> dict[str, str]:
    """Return the variables that Slurm sets in a task of an array."""
    return {
        "SLURM_ARRAY_TASK_ID": str(task),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_MAX": str(last),
        "SLURM_ARRAY_TASK_COUNT": str(count),
    }


@pytest.mark.parametrize("numbers", [range(4), range(1, 5), range(10, 30, 5), range(3, 4)])
def test_an_array_may_have_any_numbers(numbers: range) -> None:
    """``--array=0-3``, ``1-4``, ``10-25:5`` and ``3``."""
    count = len(numbers)
    shards = []
    for task in numbers:
        environment = slurm(task, numbers[0], numbers[-1], count)
        shards.append(parse_shard("slurm", environment))
    assert shards == [FileShard(number, count) for number in range(1, count + 1)]


def test_an_array_with_gaps_is_refused() -> None:
    with pytest.raises(UsageError, match="3 tasks from 1 to 7, with gaps"):
        parse_shard("slurm", slurm(2, 1, 7, 3))  # --array=1,2,7
    with pytest.raises(UsageError, match="4 tasks from 0 to 9, with gaps"):
        parse_shard("slurm", slurm(4, 0, 9, 4))  # --array=0,4,6,9
    with pytest.raises(UsageError, match="SLURM_ARRAY_TASK_COUNT is 'x', not a number"):
        parse_shard("slurm", {**slurm(1, 1, 4, 4), "SLURM_ARRAY_TASK_COUNT": "x"})


def test_pods_of_an_indexed_job_are_counted_from_zero() -> None:
    shards = []
    for index in range(4):
        shards.append(parse_shard("kubernetes/4", {"JOB_COMPLETION_INDEX": str(index)}))
    assert [str(shard) for shard in shards] == ["1/4", "2/4", "3/4", "4/4"]
    with pytest.raises(UsageError, match="there is no shard 5 of 4"):
        parse_shard("kubernetes/4", {"JOB_COMPLETION_INDEX": "4"})
