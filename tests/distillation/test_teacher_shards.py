"""Teachers' outputs that several processes compute before a run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.distillation.making import distill, pretrained
from tests.distillation.test_cached_runs import (
    LONG,
    Tree,
    causal,
    masked,
    passes,
    table,
    text,
)
from tests.training.runs import assert_same
from zoo.data.many_files.shard import FileShard
from zoo.distillation.runs import DistillRun
from zoo.distillation.teacher_shards import TeacherShard
from zoo.distillation.teachers import teacher_cache
from zoo.distillation.teachers.record_file import RecordFile
from zoo.distillation.teachers.teacher_cache import TeacherCache
from zoo.errors import UsageError, VerificationError
from zoo.training.distributed.context import DistContext

__all__ = ["passes", "text"]  # fixtures
write_block = RecordFile.write_block


def compute(tree: Tree, number: int, count: int) -> TeacherShard:
    run = DistillRun(tree, DistContext.initialize("cpu"))
    return run.compute_teacher_shard(FileShard(number, count))


def records(folder: Path) -> dict[bytes, bytes]:
    """Read key -> record of all files of a cache, by its documented layout."""
    result: dict[bytes, bytes] = {}
    files = sorted(folder.glob("*.bin"), key=lambda path: int(path.stem.split("-")[1]))
    for path in files:
        data = path.read_bytes()
        block = 0
        while block < len(data):
            at = block + 24
            block = at + int.from_bytes(data[block : block + 8], "little")
            while at < block:
                key = data[at : at + 16]
                size = int.from_bytes(data[at + 16 : at + 20], "little")
                result.setdefault(key, data[at + 20 : at + 20 + size])
                at += 20 + size
    return result


@pytest.mark.parametrize(
    "make", [pytest.param(causal, marks=LONG), masked, pytest.param(table, marks=LONG)]
)
def test_shards_have_the_bytes_of_one_process(
    make: Callable[..., Tree], text: Path, tmp_path: Path, passes: list[int]
) -> None:
    cache = tmp_path / "cache"
    tree = make(text, cache)
    plain = distill(tmp_path / "plain", tree)
    expected = records(cache)
    shutil.rmtree(cache)
    passes.clear()
    computed = {number: compute(tree, number, 3) for number in (2, 3, 1)}
    assert [number for number, shard in computed.items() if not shard.outputs] == []
    assert computed[2].missing == ["1/3", "3/3"]
    assert not computed[1].missing
    assert records(cache) == expected
    passes.clear()
    sharded = distill(tmp_path / "sharded", tree)
    assert not passes
    assert_same(plain, sharded)


class Killed(Exception):
    """Raised instead of a signal."""


def killed_at_the_second_block(records: RecordFile, block: bytes) -> int:
    """Write half of the second block, and end like a process that is killed."""
    if not records.complete:
        return write_block(records, block)
    with records.path.open("ab") as file:
        file.write(block[: len(block) // 2])
    raise Killed


def without_pending(close: Callable[[TeacherCache], None]) -> Callable[[TeacherCache], None]:
    """Return a method that closes a cache like the end of a process that is killed."""

    def closed(cache: TeacherCache) -> None:
        cache._pending = {}
        close(cache)

    return closed


def test_a_killed_shard_that_is_started_again_has_the_same_bytes(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher_cache, "BLOCK_BYTES", 2000)
    cache = tmp_path / "cache"
    tree = masked(text, cache)
    compute(tree, 1, 2)
    file = cache / "shard-1-of-2.bin"
    expected = file.read_bytes()
    shutil.rmtree(cache)
    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "write_block", killed_at_the_second_block)
        patch.setattr(TeacherCache, "close", without_pending(TeacherCache.close))
        with pytest.raises(Killed):
            compute(tree, 1, 2)
    assert file.read_bytes() != expected
    with pytest.raises(UsageError, match=r"lacks shards 1/2, 2/2 of the teacher's outputs"):
        distill(tmp_path / "run", tree)
    assert not compute(tree, 1, 2).was_complete
    assert file.read_bytes() == expected
    assert compute(tree, 1, 2).was_complete


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 3}, r"its shards have other settings: seed: 0 and 3; delete"),
        ({"distillation": {"cache_top_k": 8}}, r"is for top_k 64, not 8; delete"),
        ({"data": {"paths": ["{other}"]}}, r"its shards are of other data; delete"),
    ],
)
def test_a_shard_of_another_job_is_refused(
    change: Tree, message: str, text: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    compute(masked(text, cache), 1, 2)
    if "data" in change:
        other_text = tmp_path / "other.txt"
        other_text.write_text(text.read_text()[::-1])
        change = {"data": {"paths": [str(other_text)]}}
    files = {path: path.read_bytes() for path in cache.iterdir()}
    with pytest.raises(UsageError, match=message):
        compute(masked(text, cache, **change), 2, 2)
    assert {path: path.read_bytes() for path in cache.iterdir()} == files


def test_a_shard_of_another_teacher_or_number_of_shards_is_refused(
    text: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    compute(masked(text, cache), 1, 2)
    with pytest.raises(UsageError, match="holds the outputs of another job: it has shard 1/2"):
        compute(masked(text, cache), 1, 3)
    teachers = {"teachers": [str(pretrained("bert", seed=5))]}
    with pytest.raises(UsageError, match="is from another teacher; delete"):
        compute(masked(text, cache, distillation=teachers), 2, 2)
    with pytest.raises(UsageError, match=r"lacks shard 2/2 .*the same command with --shard 2/2"):
        distill(tmp_path / "run", masked(text, cache))


def test_shards_that_changed_places_are_refused(text: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    compute(masked(text, cache), 1, 2)
    for path in [*cache.iterdir()]:
        path.rename(path.with_name(path.name.replace("1-of", "2-of")))
    with pytest.raises(VerificationError, match=r"shard-2-of-2.json is the record of another file"):
        compute(masked(text, cache), 1, 2)


@pytest.mark.long
def test_processes_of_a_run_read_the_same_shards(text: Path, tmp_path: Path) -> None:
    tree = masked(text, tmp_path / "cache")
    for number in (1, 2):
        compute(tree, number, 2)
    settings = tmp_path / "settings.yaml"
    settings.write_text(json.dumps(tree))
    done = warm.in_processes(
        2, "distill", str(settings), "--device", "cpu", "--no-score", "-o", str(tmp_path / "run")
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [(tmp_path / "cache" / f"outputs-{rank}.bin").stat().st_size for rank in (0, 1)] == [
        0,
        0,
    ]


def test_without_a_cache_there_is_nothing_to_compute(text: Path) -> None:
    with pytest.raises(UsageError, match="nothing keeps them; name a directory with --cache"):
        compute(masked(text, None), 1, 2)


@pytest.mark.long
def test_more_shards_than_batches(text: Path, tmp_path: Path) -> None:
    """A shard without a batch is complete, so that a job array needs no count."""
    tree = masked(text, tmp_path / "cache", max_steps=1)
    results = [compute(tree, number, 5) for number in range(1, 6)]
    assert not results[-1].missing
    assert 0 in {result.outputs for result in results}
    distill(tmp_path / "run", tree)


def zoo(*arguments: object) -> Any:
    return warm.zoo("distill", *map(str, arguments), "--device", "cpu")


def test_the_command(text: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    settings = ["--set", "objective_args.mask_schedule=static", "--set", "max_steps=2"]
    settings += ["--set", "seq_len=64", "--set", "global_batch_tokens=256"]
    command = [
        "--teacher",
        pretrained("bert"),
        "--student",
        "distilbert",
        "--train",
        text,
        "--eval",
        text,
    ]
    command += ["--recipe", "logits", "--set", "student.num_layers=1", *settings]
    command += ["--eval", text, "--cache-teacher", cache]
    done = zoo(*command, "--shard", "2/2")
    assert done.returncode == 0, done.stderr
    assert "shard: 2/2" in done.stdout
    assert "missing shards: 1/2" in done.stdout
    done = zoo(*command, "--shard", "2/2")
    assert "outputs: complete before" in done.stdout
    done = zoo(*command, "--shard", "1/2", "-o", tmp_path / "run")
    assert done.returncode == 2
    assert "--shard computes outputs of the teacher, and trains nothing" in done.stderr
    assert "leave --output out" in done.stderr
    done = zoo(*command, "--shard", "0/2")
    assert done.returncode == 2
    assert "shards are counted from 1" in done.stderr
