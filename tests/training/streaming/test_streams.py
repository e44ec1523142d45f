"""Runs on a stream: the rows of each step, kills and resumes, and what is refused."""

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.data.streams.making import documents
from tests.training.runs import (
    EVAL_TEXT,
    TEXT,
    assert_equal_files,
    assert_same,
    finish,
    finish_in_two_processes,
    lines,
    options,
    records,
    small,
    start,
    wait_until,
)
from tests.training.streaming.conftest import COUNT, FAMILY
from tests.training.streaming.processes import Processes
from zoo.data.cache import cached_corpus
from zoo.data.tokenizer import TokenizerToTrain
from zoo.errors import UsageError, VerificationError
from zoo.plugins import get_family
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun
from zoo.training.setup import PretrainSetup, pretrain_setup
from zoo.training.state.progress import list_checkpoints
from zoo.training.streaming import data as stream_data
from zoo.training.streaming.data import require_same_shards

pytestmark = pytest.mark.usefixtures("shared_home")
STEPS = 12
LANES = 4


def stream_settings(data: Path, tokenizer: str, **changes: Any) -> dict[str, Any]:
    settings = {
        "paths": [str(data)],
        "eval_paths": [str(EVAL_TEXT)],
        "tokenizer": tokenizer,
        "streaming": True,
        "stream": {"lanes": LANES, "shuffle_buffer": 20},
    }
    return {**settings, **changes}


def open_setup(data: Path, tokenizer: str, **changes: Any) -> PretrainSetup:
    config = small(
        FAMILY, data=stream_settings(data, tokenizer), global_batch_tokens=512, **changes
    )
    return pretrain_setup(config)


def step_digests(setup: PretrainSetup, processes: int) -> list[str]:
    group = Processes(setup, processes)
    digests = [group.step_digest(step) for step in range(STEPS)]
    group.close()
    return digests


@pytest.mark.by_default("4")
@pytest.mark.parametrize("count", [2, 4, 8])
def test_steps_have_the_same_rows_in_any_number_of_processes(
    count: int, data: Path, tokenizer: str
) -> None:
    setup = open_setup(data, tokenizer)
    assert step_digests(setup, count) == step_digests(setup, 1)


def test_a_process_only_reads_the_lanes_of_its_rows(data: Path, tokenizer: str) -> None:
    group = Processes(open_setup(data, tokenizer), 2)
    group.step_digest(0)
    assert group.lanes_read() == [LANES // 2, LANES // 2]
    group.close()


def test_kills_and_resumes_with_other_processes(data: Path, tokenizer: str) -> None:
    """At random steps, the run goes on with another number of processes and of workers."""
    setup = open_setup(data, tokenizer)
    steps = 60
    unbroken = Processes(setup, 1)
    expected = [unbroken.step_digest(step) for step in range(steps)]
    assert int(unbroken.tables(steps)["lanes"][:, 0].max()) >= 1, "an epoch has ended"
    rng = random.Random(0)
    digests: list[str] = []
    tables = None
    while len(digests) < steps:
        begin = len(digests)
        workers = 1 if begin == 0 else 0
        group = Processes(setup.with_workers(workers), rng.choice([1, 2, 4]), begin, tables)
        end = min(steps, begin + rng.randint(1, 25))
        digests.extend(group.step_digest(step) for step in range(begin, end))
        tables = group.tables(end)
        group.close()
    assert digests == expected


def test_an_epoch_has_each_token_once(data: Path, tokenizer: str) -> None:
    """The labels of the first epoch of all lanes are the tokens of all documents, by hand."""
    setup = open_setup(data, tokenizer)
    assert setup.stream is not None
    vocabulary = setup.objective.vocabulary
    expected: Counter[int] = Counter()
    for text in documents(COUNT):
        ids = vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
        expected.update([*ids, vocabulary.special_token_id("eos")])
    group = Processes(setup, 1)
    labels: Counter[int] = Counter()
    rows = group.loaders[0].streams["lanes"]
    for lane in rows.lanes:
        row = 0
        while True:
            example = lane.example(row, None)  # type: ignore[arg-type]
            if lane.state.position.epoch > 0:
                break
            labels.update(example.values["labels"].tolist())
            row += 1
    assert labels == expected
    group.close()


def test_batches_that_lanes_do_not_divide_are_read_in_order(data: Path, tokenizer: str) -> None:
    config = small(FAMILY, data=stream_settings(data, tokenizer), global_batch_tokens=64 * 6)
    setup = pretrain_setup(config)
    assert step_digests(setup, 2) == step_digests(setup, 1)


def stream_options(data: Path, tokenizer: str, **changes: Any) -> list[str]:
    settings = stream_settings(data, tokenizer)
    return [FAMILY, *options(data=settings, global_batch_tokens=512, **changes)]


def test_a_resumed_run_ends_at_the_same_bytes(data: Path, tokenizer: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    second = tmp_path / "second"
    words = stream_options(data, tokenizer)
    assert finish(*words, "-o", str(first)).returncode == 0
    assert finish(*words, "-o", str(second), "--max-time", "0.001s").returncode == 0
    done = finish("--resume", str(second), "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert_same(first, second)
    record = json.loads((first / "run.json").read_bytes())["stream"]
    assert [Path(shard["name"]).name for shard in record["shards"]] == [
        "a.jsonl",
        "b.jsonl.gz",
        "c.jsonl.zst",
        "table.parquet",
        "web.tar",
        "data-00000-of-00002.arrow",
        "data-00001-of-00002.arrow",
        "shard.00000.mds.zstd",
    ]


@pytest.mark.long
def test_two_processes_have_the_losses_of_one(data: Path, tokenizer: str, tmp_path: Path) -> None:
    words = stream_options(data, tokenizer, config={"embedding_dropout": 0.0, "dropout": 0.0})
    words += ["--set=config.attention_dropout=0.0"]
    one = tmp_path / "one"
    two = tmp_path / "two"
    assert finish(*words, "-o", str(one)).returncode == 0
    finish_in_two_processes("pretrain", *words, "-o", str(two), "--max-time", "0.001s")
    assert finish("--resume", str(two)).returncode == 0
    expected = [record["loss"] for record in records(one)]
    assert [record["loss"] for record in records(two)] == pytest.approx(expected, abs=1e-5)


def test_held_out_documents(data: Path, tokenizer: str, tmp_path: Path) -> None:
    settings = stream_settings(data, tokenizer, eval_paths=[])
    settings["stream"] = {"lanes": LANES, "eval_documents": 100}
    setup = pretrain_setup(small(FAMILY, data=settings, global_batch_tokens=512))
    assert setup.corpus.record.splits["train"].documents == 100
    assert step_digests(setup, 2) == step_digests(setup, 1)


@pytest.mark.long
def test_changed_files_are_named(data: Path, tokenizer: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = stream_options(data, tokenizer)
    assert finish(*words, "-o", str(run), "--max-time", "0.001s").returncode == 0
    file = data / "a.jsonl"
    content = file.read_bytes()
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    file.write_bytes(content[:-100])
    done = finish("--resume", str(run))
    assert done.returncode == 2
    assert f"a.jsonl has {len(content) - 100:,} bytes, and had {len(content):,}" in done.stderr
    file.write_bytes(content.replace(b"mat", b"dog"))
    os.utime(file, ns=times)
    done = finish("--resume", str(run))
    assert done.returncode == 2
    assert f"a.jsonl was changed since {run} began" in " ".join(done.stderr.split())
    # A copy with another time has the same digest.
    file.write_bytes(content)
    done = finish("--resume", str(run))
    assert done.returncode == 0, done.stderr


def test_a_large_stream_is_recognised_by_sizes_and_times(
    data: Path, tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_data, "HASHED_BYTES", 0)
    setup = open_setup(data, tokenizer)
    assert setup.stream is not None
    record = setup.stream.record()
    assert not record.shards[0].blake3
    require_same_shards(setup.stream, tmp_path, record)
    os.utime(data / "a.jsonl", ns=(0, 0))
    with pytest.raises(UsageError, match=r"a.jsonl was changed since .* cp -p and rsync -a keep"):
        require_same_shards(setup.stream, tmp_path, record)


def test_rows_that_changed_are_noticed_by_the_block(data: Path, tokenizer: str) -> None:
    """Also where the files' sizes and times are the same, as on a disk that returns other bytes."""
    setup = open_setup(data, tokenizer)
    group = Processes(setup, 1)
    for step in range(5):
        group.step_digest(step)
    tables = group.tables(5)
    group.close()
    for file in data.glob("*.jsonl"):
        file.write_bytes(file.read_bytes().replace(b"mat", b"dog"))
    resumed = Processes(setup, 1, 5, tables)
    with pytest.raises(VerificationError, match=r"row [\d,]+ on is not what the run read"):
        for step in range(5, 10):
            resumed.step_digest(step)
    resumed.close()


@pytest.mark.parametrize("place", ["inside of a segment", "before a segment"])
def test_a_source_that_ends_early_is_named(place: str, data: Path, tokenizer: str) -> None:
    """It was cut after a line while the run reads it, so that each of its lines is sound."""
    setup = open_setup(data, tokenizer)
    group = Processes(setup, 1)
    for step in range(2):
        group.step_digest(step)
    file = data / "a.jsonl"
    size = file.stat().st_size
    cut = 0
    if place == "inside of a segment":
        cut = 1 + file.read_bytes().index(b"\n", size // 2)
    os.truncate(file, cut)
    with pytest.raises(VerificationError, match=rf"a.jsonl has [\d,]+ bytes, and had {size:,}"):
        for step in range(2, 100):
            group.step_digest(step)
    group.close()


def test_a_worker_that_dies_is_named(data: Path, tokenizer: str) -> None:
    setup = open_setup(data, tokenizer)
    group = Processes(setup.with_workers(1), 1)
    group.step_digest(0)
    worker: Any = group.loaders[0].streams["lanes"].blocks
    worker._workers[0]._process.kill()
    with pytest.raises(UsageError, match=r"process 1 of 1 that tokenizes .* killed by SIGKILL"):
        for step in range(1, 100):
            group.step_digest(step)
    group.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": None}, "a stream takes a tokenizer that exists"),
        ({"eval_paths": []}, "takes either eval_paths or stream.eval_documents"),
        ({"paths": []}, "streaming is set, and paths names no files"),
        ({"streaming": False}, "stream is set, and needs streaming"),
    ],
)
def test_settings_that_are_refused(
    changes: dict[str, Any], message: str, data: Path, tokenizer: str
) -> None:
    settings = {**stream_settings(data, tokenizer), **changes}
    with pytest.raises(UsageError, match=message):
        pretrain_setup(small(FAMILY, data=settings))


@pytest.mark.by_default("t5-span-corruption")
@pytest.mark.parametrize(
    ("family", "objective"),
    [
        ("bert", "masked-lm"),
        ("bert", "masked-lm+next-sentence"),
        ("electra", "replaced-token-detection"),
        ("t5", "span-corruption"),
        ("t5", "prefix-lm"),
        ("bart", "text-infilling+sentence-permutation"),
    ],
)
def test_objectives(family: str, objective: str, data: Path, shared_home: Path) -> None:
    """Rows have one shape in all blocks, and are the same in any number of processes."""
    trained = TokenizerToTrain.for_family(get_family(family), vocab_size=500)
    tokenizer = str(cached_corpus([TEXT], trained, eval_fraction=0).path)
    settings = stream_settings(data, tokenizer)
    config = small(family, objective=objective, data=settings, global_batch_tokens=512)
    setup = pretrain_setup(config)
    assert step_digests(setup, 2) == step_digests(setup, 1)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("xlnet", {}, "continue in the next step, and a stream shuffles them"),
        ("bert", {"objective_args": {"mask_schedule": "static"}}, "mask_schedule is static"),
        ("bert", {"objective_args": {"mask_smoothing": 0.5}}, "mask_smoothing counts the tokens"),
    ],
)
def test_objectives_that_take_a_whole_corpus(
    family: str, changes: dict[str, Any], message: str, data: Path, shared_home: Path
) -> None:
    trained = TokenizerToTrain.for_family(get_family(family), vocab_size=500)
    tokenizer = str(cached_corpus([TEXT], trained, eval_fraction=0).path)
    config = small(family, data=stream_settings(data, tokenizer), **changes)
    with pytest.raises(UsageError, match=message):
        pretrain_setup(config)


def test_epochs_of_a_stream_are_refused(data: Path, tokenizer: str) -> None:
    settings = {"data": stream_settings(data, tokenizer), "num_train_epochs": 2}
    run = PretrainRun({"family": FAMILY, **settings}, DistContext.initialize("cpu"))
    with pytest.raises(UsageError, match="give --max-steps in place of --epochs"):
        run.describe()


@pytest.mark.long
def test_a_warm_up_has_rows_of_its_own(data: Path, tokenizer: str, tmp_path: Path) -> None:
    """A run that is resumed in its warm-up, and one that is resumed after it, end alike."""
    warmup = {"seq_len": 32, "fraction": 0.5}
    words = stream_options(
        data, tokenizer, seq_len_warmup=warmup, save_steps=4, save_total_limit=10
    )
    unbroken = tmp_path / "unbroken"
    assert finish(*words, "-o", str(unbroken)).returncode == 0
    for step in (4, 8):
        copy = tmp_path / f"from-{step}"
        shutil.copytree(unbroken, copy)
        shutil.rmtree(copy / "model")
        for path in (copy / "checkpoints").iterdir():
            if path.name > f"step-{step:08}":
                shutil.rmtree(path)
        done = finish("--resume", str(copy))
        assert done.returncode == 0, done.stderr
        assert_equal_files(unbroken, copy)


@pytest.mark.long
@pytest.mark.parametrize("fsdp", [False, True])
@pytest.mark.parametrize("async_save", [False, True])
def test_killed_runs_go_on_in_other_processes(
    fsdp: bool, async_save: bool, data: Path, tokenizer: str, tmp_path: Path
) -> None:
    """The process is killed at random; the run goes on with two processes, and with one again.

    With FSDP, two processes begin: one has no shards that two could read.
    """
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
    changes = {"max_steps": 150, "eval_steps": 75, "config": no_dropout, "async_save": async_save}
    words = stream_options(data, tokenizer, save_total_limit=100, **changes)
    if fsdp:
        words.append("--fsdp")
    unbroken = tmp_path / "unbroken"
    run = tmp_path / "run"
    assert finish(*words, "-o", str(unbroken)).returncode == 0
    rng = random.Random(f"{fsdp} {async_save}")
    if fsdp:
        finish_in_two_processes("pretrain", *words, "-o", str(run), "--max-time", "0.5s")
    else:
        process = start(*words, "-o", str(run))
        stop = rng.randint(5, 40)
        wait_until(lambda: lines(run) > stop and bool(list_checkpoints(run)), process)
        process.kill()
        process.communicate()
    resumed = [str(run), "--workers", "1"]
    done = warm.in_processes(2, "pretrain", "--resume", *resumed, "--max-time", "1s")
    assert done.returncode == 0, done.stderr
    done = finish("--resume", str(run))
    assert done.returncode == 0, done.stderr
    expected = [record["loss"] for record in records(unbroken)]
    assert [record["loss"] for record in records(run)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
def test_a_killed_run_ends_at_the_same_bytes(data: Path, tokenizer: str, tmp_path: Path) -> None:
    words = stream_options(data, tokenizer, max_steps=150, eval_steps=75, async_save=True)
    unbroken = tmp_path / "unbroken"
    run = tmp_path / "run"
    assert finish(*words, "-o", str(unbroken)).returncode == 0
    rng = random.Random(1)
    process = start(*words, "-o", str(run))
    for _ in range(3):
        target = lines(run) + rng.randint(5, 30)
        wait_until(lambda: lines(run) > target and bool(list_checkpoints(run)), process)  # noqa: B023
        process.kill()
        process.communicate()
        process = start("--resume", str(run))
    process.communicate()
    assert process.returncode == 0
    assert_same(unbroken, run)
