"""2 to 8 processes share a directory: the result is the same as in sequence."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests import warm
from tests.faults import newer
from tests.reporting import record
from tests.training.runs import assert_same
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.digests import check_digests

FAMILIES = ("bert", "elmo", "gpt", "t5", "roberta", "electra", "albert", "deberta", "modernbert")
ROUNDS = 50


def failed(results: "list[subprocess.CompletedProcess[str]]", refusal: str = "") -> list[str]:
    """Return the errors of processes that failed, except for an expected refusal."""
    return [r.stderr for r in results if r.returncode and not (refusal and refusal in r.stderr)]


def plugins(folder: Path, count: int) -> list[str]:
    """Each process disables a different plugin."""
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    names = FAMILIES[:count]
    done = warm.at_once(*(["plugins", "disable", name] for name in names), ZOO_HOME=str(home))
    text = (home / "plugins.yaml").read_text()
    return failed(done) + [f"{name} is lost" for name in names if f"- {name}" not in text]


def evaluations(folder: Path, count: int) -> list[str]:
    """Each process records a result in one manifest."""
    seen = len(load_checkpoint(folder / "model").manifest.evaluations)
    seeds = range(seen, seen + count)
    done = warm.at_once(*(newer.evaluate(folder, "--seed", str(seed)) for seed in seeds))
    check_digests(folder / "model")
    records = load_checkpoint(folder / "model").manifest.evaluations
    recorded = {record.settings["seed"] for record in records}
    return failed(done) + [f"{seed} is lost" for seed in seeds if seed not in recorded]


def conversions(folder: Path, count: int) -> list[str]:
    """Each process converts one model into the cache, and reads it."""
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    words = ["run", "classify", folder / "hub", "a b", "--json"]
    done = warm.at_once(*[words] * count, ZOO_HOME=str(home))
    others = [r.stdout for r in done if r.stdout != done[0].stdout]
    return failed(done) + others


def graphs(folder: Path, count: int) -> list[str]:
    """Each process exports one model into the cache of graphs."""
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    words = ["run", "classify", folder / "model", "a b", "--backend", "onnx"]
    done = warm.at_once(*[words] * count, ZOO_HOME=str(home))
    return failed(done) + [r.stdout for r in done if r.stdout != done[0].stdout]


def corpora(folder: Path, count: int) -> list[str]:
    """Each process trains on the same texts, before the cache has their corpus."""
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    runs = [folder / f"run-{k}" for k in range(count)]
    words = [[*newer.pretrain(folder), "-o", run] for run in runs]
    errors = failed(warm.at_once(*words, ZOO_HOME=str(home)))
    for run in [] if errors else runs[1:]:
        assert_same(runs[0], run)
    for run in runs:
        shutil.rmtree(run, ignore_errors=True)
    return errors


def teachers(folder: Path, count: int) -> list[str]:
    """Each process caches the outputs of one teacher: others are refused while one does."""
    cache, runs = folder / "cache", [folder / f"run-{k}" for k in range(count)]
    shutil.rmtree(cache, ignore_errors=True)
    done = warm.at_once(*([*newer.distill(folder, cache), "-o", run] for run in runs))
    errors = failed(done, "another process writes the cache")
    ended = [run for run, one in zip(runs, done, strict=True) if one.returncode == 0]
    errors += [] if ended else ["no run ended"]
    for run in ended[1:]:
        assert_same(ended[0], run)
    for run in runs:
        shutil.rmtree(run, ignore_errors=True)
    return errors


def resumed(folder: Path, count: int) -> list[str]:
    """All processes resume one run that was cut off: one does, or each finds it finished."""
    whole, run = folder / "whole", folder / "run"
    if not whole.exists():
        words = [*newer.finetune(folder), "--set", "save_steps=1", "--keep-optimizer", "-o", run]
        assert warm.zoo(*words).returncode == 0
        run.rename(whole)
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(whole, run, symlinks=True)
    shutil.rmtree(run / "model")
    last = max((run / "checkpoints").glob("step-*"))
    shutil.rmtree(last)
    done = warm.at_once(*[["finetune", "--resume", run, "--device", "cpu"]] * count)
    errors = failed(done, "process")
    errors += [] if 0 in [one.returncode for one in done] else ["no process ended the run"]
    if not errors:
        assert_same(whole, run)
    return errors


def stored(folder: Path, count: int) -> list[str]:
    """Each process writes one directory: one does, and others say that it exists."""
    target = folder / "out"
    shutil.rmtree(target, ignore_errors=True)
    words = ["convert", folder / "hub", "-o", target]
    done = warm.at_once(*[words] * count)
    check_digests(target)
    errors = failed(done, "exists")
    return errors + ([] if 0 in [one.returncode for one in done] else ["no process wrote"])


MEETINGS: dict[str, Callable[[Path, int], list[str]]] = {
    "plugins": plugins,
    "evaluations": evaluations,
    "conversions": conversions,
    "graphs": graphs,
    "corpora": corpora,
    "teachers": teachers,
    "resumed": resumed,
    "stored": stored,
}
QUICK = ("plugins", "evaluations", "stored", "resumed")


@pytest.mark.by_default("plugins-1", "stored-1")
@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        *((name, 1) for name in QUICK),
        *(pytest.param(name, ROUNDS, marks=pytest.mark.long) for name in MEETINGS),
    ],
)
def test_meeting(name: str, rounds: int, tmp_path: Path) -> None:
    folder, chance = newer.newer_inputs(tmp_path / "inputs"), Random(name)
    errors: list[str] = []
    for _ in range(rounds):
        errors += MEETINGS[name](folder, chance.randint(2, 8) if rounds > 1 else 3)[:1]
    measured = f"{name}: {rounds} rounds"
    record("processes", cases=rounds, failures=len(errors), measured=measured)
    assert errors == []
