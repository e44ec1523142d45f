"""Runs that mix streams with a corpus: rows of each step, kills and resumes, what is refused."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.streams.making import documents, write_json_lines
from tests.training.runs import (
    EVAL_TEXT,
    TEXT,
    assert_same,
    finish,
    lines,
    options,
    records,
    small,
    wait_until,
)
from tests.training.streaming.conftest import FAMILY
from tests.training.streaming.processes import Processes
from zoo.errors import UsageError
from zoo.training.config.overrides import deep_merge
from zoo.training.setup import PretrainSetup, pretrain_setup
from zoo.training.state.progress import list_checkpoints

pytestmark = pytest.mark.usefixtures("shared_home")
LANES = 4
WEIGHTS = {"web": 0.5, "books": 0.25, "forum": 0.25}
# From this step on, the rows of a stream no longer divide into lanes.
CURRICULUM = [{"step": 20, "weights": {"web": 0.3, "books": 0.4, "forum": 0.3}}]


def mixed_settings(data: Path, tokenizer: str, /, **changes: Any) -> dict[str, Any]:
    """Return settings with two streams and a corpus."""
    forum = data.parent / "forum.jsonl"
    write_json_lines(forum, [text.upper() for text in documents(100)])
    sources: dict[str, dict[str, Any]] = {
        "web": {"paths": [str(data)], "eval_paths": [str(EVAL_TEXT)]},
        "books": {"paths": [str(TEXT)], "eval_paths": [str(EVAL_TEXT)], "streaming": False},
        "forum": {"paths": [str(forum)]},
    }
    for name, weight in WEIGHTS.items():
        sources[name]["weight"] = weight
    settings = {
        "paths": [],
        "eval_paths": [],
        "sources": sources,
        "tokenizer": tokenizer,
        "streaming": True,
        "stream": {"lanes": LANES, "shuffle_buffer": 20, "eval_documents": 20},
    }
    return deep_merge(settings, changes)


def open_setup(data: Path, tokenizer: str, /, **changes: Any) -> PretrainSetup:
    settings = mixed_settings(data, tokenizer, **changes)
    config = small(FAMILY, data=settings, global_batch_tokens=512, max_steps=60)
    return pretrain_setup(config)


def test_kills_and_resumes_with_other_processes(data: Path, tokenizer: str) -> None:
    """At random steps, the run goes on with another number of processes, and reads the same rows.

    The shares of each step are counted.
    """
    setup = open_setup(data, tokenizer, curriculum=CURRICULUM)
    steps = 60
    unbroken = Processes(setup, 1)
    expected = []
    rows: dict[str, int] = dict.fromkeys(WEIGHTS, 0)
    for step in range(steps):
        if step == 20:
            assert rows == {"web": 80, "books": 40, "forum": 40}
        expected.append(unbroken.step_digest(step))
        for name, count in unbroken.rows_by_source.items():
            rows[name] += count
    assert rows == {"web": 80 + 96, "books": 40 + 128, "forum": 40 + 96}
    unbroken.close()
    assert len(set(expected)) == steps
    rng = random.Random(0)
    digests: list[str] = []
    tables = None
    while len(digests) < steps:
        begin = len(digests)
        group = Processes(setup.with_workers(0), rng.choice([1, 2, 4]), begin, tables)
        end = min(steps, begin + rng.randint(1, 25))
        digests.extend(group.step_digest(step) for step in range(begin, end))
        tables = group.tables(end)
        group.close()
    assert digests == expected
    # The forum ended early, and began anew.
    assert tables is not None
    assert int(tables["lanes.forum"][:, 0].max()) >= 1


def test_a_process_reads_the_lanes_of_its_rows(data: Path, tokenizer: str) -> None:
    """Each step has four rows of ``web``, which has four lanes, and two of ``forum``, of two."""
    group = Processes(open_setup(data, tokenizer), 2)
    for step in range(4):
        group.step_digest(step)
    assert group.lanes_read("lanes.web") == [LANES // 2, LANES // 2]
    assert group.lanes_read("lanes.forum") == [1, 1]
    group.close()


def test_a_row_of_a_stream_is_read_once(data: Path, tokenizer: str) -> None:
    """Also where the shares change, and where the rows of a step do."""
    setup = open_setup(data, tokenizer, curriculum=CURRICULUM)
    group = Processes(setup, 1)
    loader = group.loaders[0]
    indices = []
    for step in range(30):
        indices += [loader.index(step, place) for place in range(8)]
    loader.start_at(30, len(indices))
    loader.global_batch_size = 20
    for step in range(30, 40):
        indices += [loader.index(step, place) for place in range(20)]
    group.close()
    sources = np.array([loader.dataset.source_number(index) for index in indices])  # type: ignore[attr-defined]
    for number, name in enumerate(WEIGHTS):
        if name != "books":
            rows = np.sort(np.array(indices)[sources == number])
            assert (np.diff(rows) == 1).all()


def test_a_resumed_run_ends_at_the_same_bytes(data: Path, tokenizer: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    second = tmp_path / "second"
    settings = mixed_settings(data, tokenizer)
    words = [FAMILY, *options(data=settings, global_batch_tokens=512)]
    assert finish(*words, "-o", str(first)).returncode == 0
    assert finish(*words, "-o", str(second), "--max-time", "0.001s").returncode == 0
    done = finish("--resume", str(second))
    assert done.returncode == 0, done.stderr
    assert_same(first, second)
    manifest = json.loads((first / "run.json").read_bytes())
    assert manifest["sources"]["web"]["stream"]["lanes"] == LANES
    assert manifest["sources"]["books"].get("stream") is None
    record = records(first)[-1]
    assert {name: part["share"] for name, part in record["sources"].items()} == WEIGHTS
    # Changed shards of a source are named.
    file = tmp_path / "forum.jsonl"
    file.write_bytes(file.read_bytes().replace(b"NUMBER", b"LUMBER"))
    done = finish("--resume", str(second))
    assert done.returncode == 2
    assert "forum.jsonl was changed since" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": None}, "a stream takes a tokenizer that exists"),
        ({"stream": {"eval_documents": 0}}, "the source forum is a stream, and has no text to"),
        ({"mixing": "epochs"}, "web has a weight, and data.mixing is epochs"),
        ({"sources": {"forum": {"weight": 0.3}}}, "add up to 1.05, and not to 1"),
        ({"sources": {"books": {"streaming": True}}}, None),
        ({"sources": {"web": {"paths": ["CORPUS"]}}}, "the source web: .* is a built corpus"),
        ({"sources": {"forum": {"paths": ["nowhere.jsonl"]}}}, "nowhere.jsonl"),
    ],
)
def test_settings_that_are_refused(
    changes: dict[str, Any], message: str | None, data: Path, tokenizer: str
) -> None:
    changes = json.loads(json.dumps(changes).replace("CORPUS", tokenizer))
    if message is None:
        assert set(open_setup(data, tokenizer, **changes).source_streams) == set(WEIGHTS)
        return
    with pytest.raises(Exception, match=message) as caught:
        open_setup(data, tokenizer, **changes)
    assert isinstance(caught.value, UsageError) or "nowhere" in message


def test_a_stream_needs_a_share(data: Path, tokenizer: str) -> None:
    settings = mixed_settings(data, tokenizer)
    for source in settings["sources"].values():
        del source["weight"]
    with pytest.raises(UsageError, match="number of tokens is not known"):
        small(FAMILY, data=settings)


PROGRAM = [str(Path(__file__).with_name("digest_program.py"))]


def launcher(count: int) -> list[str]:
    if count == 1:
        return [sys.executable]
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*run, "--nproc-per-node", str(count)]


def read_digests(folder: Path) -> dict[tuple[int, int], set[str]]:
    """Return step and place -> the digests of the rows that processes read there."""
    digests: dict[tuple[int, int], set[str]] = {}
    for file in folder.glob("*.jsonl"):
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # Otherwise its process was killed.
                step, place, digest = json.loads(line)
                digests.setdefault((step, place), set()).add(digest)
    return digests


@pytest.mark.long
def test_one_two_and_four_processes_read_the_same_rows(
    data: Path, tokenizer: str, tmp_path: Path
) -> None:
    """Real processes: one is killed at a random step, two go on and are killed, four end the run.

    They read each row of an unbroken run, and have its losses. Further processes tokenize the
    streams of those that go on.
    """
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
    settings = mixed_settings(data, tokenizer, curriculum=CURRICULUM)
    changes: dict[str, Any] = {"max_steps": 90, "eval_steps": 30, "save_total_limit": 100}
    words = [
        FAMILY,
        *options(data=settings, global_batch_tokens=512, config=no_dropout, **changes),
    ]
    unbroken = tmp_path / "unbroken"
    run = tmp_path / "run"
    folders = {}
    for name in ("expected", "digests"):
        folders[name] = tmp_path / name
        folders[name].mkdir()
    command = [*launcher(1), *PROGRAM, str(folders["expected"]), "pretrain", "--device", "cpu"]
    subprocess.run([*command, *words, "-o", str(unbroken)], check=True, capture_output=True)
    rng = random.Random(0)
    arguments = [*words, "-o", str(run)]
    for count in (1, 2, 4):
        command = [*launcher(count), *PROGRAM, str(folders["digests"]), "pretrain"]
        process = subprocess.Popen(
            [*command, "--device", "cpu", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if count < 4:
            target = lines(run) + rng.randint(10, 20)
            wait_until(lambda: lines(run) > target and bool(list_checkpoints(run)), process)  # noqa: B023
            os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
        assert count < 4 or process.returncode == 0, errors
        arguments = ["--resume", str(run), "--workers", "1"]
    expected = read_digests(folders["expected"])
    assert len(expected) >= 90 * 8
    assert [key for key, values in expected.items() if len(values) != 1] == []
    assert read_digests(folders["digests"]) == expected
    losses = [record["loss"] for record in records(unbroken)]
    assert [record["loss"] for record in records(run)] == pytest.approx(losses, abs=1e-5)
