"""Commands that are interrupted at random moments, and then run again.

The output must be absent or complete after the interruption, the second run must succeed, and no
other files may remain.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from tests import warm
from tests.checkpoints import Make
from tests.data.making import paragraphs, trained
from tests.distillation.making import tune_teacher
from tests.faults import newer
from tests.finetuning.making import labelled
from tests.finetuning.making import settings as finetune_settings
from tests.inference.making import make_checkpoint
from tests.plugins.making import LOGGER, Environment, make_wheel
from tests.reporting import record
from tests.training.runs import assert_same, options
from zoo.checkpoint.digests import check_manifest

DEADLY = [signal.SIGKILL, signal.SIGBUS]  # the process cannot react
ENDING = [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
SHORT = [signal.SIGKILL, signal.SIGHUP, signal.SIGQUIT]
LONG = [signal.SIGKILL] * 50 + [signal.SIGBUS] * 4 + ENDING * 4


def contents(path: Path) -> dict[str, bytes]:
    """Return the files of a directory; empty if it does not exist."""
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@dataclass(frozen=True)
class Command:
    """Command that writes a directory.

    Attributes:
        words: arguments of the command, which writes ``out`` in ``folder``.
        folder: directory with outputs only.
        whole: files of the complete output.
        seconds: duration of the command.
    """

    words: tuple[object, ...]
    folder: Path
    whole: dict[str, bytes]
    seconds: float

    @classmethod
    def of(cls, folder: Path, *words: object) -> "Command":
        """Run a command once, and measure its duration."""
        folder.mkdir()
        begin = time.monotonic()
        done = warm.zoo(*words, "-o", folder / "out")
        assert done.returncode == 0, done.stderr
        return cls(words, folder, contents(folder / "out"), time.monotonic() - begin)

    def run(self, when: warm.Signal | None = None) -> "subprocess.CompletedProcess[str]":
        """Run the command, replacing existing output."""
        out = self.folder / "out"
        words = (*self.words, "-o", out, *(["--force"] * out.exists()))
        return warm.zoo_with_signal(when, *words) if when else warm.zoo(*words)

    def interrupt(self, number: int, moment: float) -> bool:
        """Run the command, send a signal after a delay, and run the command again.

        Returns:
            whether the signal ended the command.
        """
        before = contents(self.folder / "out")
        done = self.run(warm.Signal(number, moment * self.seconds, self.folder))
        left = contents(self.folder / "out")
        assert left in (before, self.whole)
        if number not in DEADLY:
            assert os.listdir(self.folder) == ["out"] * bool(left)
            if done.returncode not in (
                0,
                -number,
            ):  # the command or the interpreter was exiting
                assert (done.returncode, done.stderr) == (130, "error: interrupted\n")
        again = self.run()
        assert (again.returncode, again.stderr) == (0, "")
        assert contents(self.folder / "out") == self.whole
        assert os.listdir(self.folder) == ["out"]
        return done.returncode != 0

    def interrupt_often(self, numbers: Sequence[int]) -> None:
        """Interrupt the command at random moments, in half of the cases with existing output."""
        chance = random.Random(len(numbers))
        with counted(str(self.words[0])) as tally:
            for k, number in enumerate(numbers):
                tally.sent.append(number)
                if k % 2:
                    (self.folder / "out").rename(self.folder.parent / f"old-{k}")
                tally.ended += self.interrupt(number, chance.random())


@dataclass
class Tally:
    """Signals sent to a command, and the number of them that ended it: others came after it."""

    sent: list[int] = field(default_factory=list)
    ended: int = 0


@contextlib.contextmanager
def counted(command: str) -> Iterator[Tally]:
    """Yield a tally of signals, and record the result."""
    tally, failed = Tally(), 1
    try:
        yield tally
        failed = 0
    finally:
        kills = sum(number in DEADLY for number in tally.sent)
        last = tally.sent[-1] in DEADLY
        measured = f"{command}: {tally.ended} of {len(tally.sent)} signals before its end"
        record("kill", cases=kills, failures=failed * last, measured=measured)
        if kills < len(tally.sent):
            rest = len(tally.sent) - kills
            record("signal", cases=rest, failures=failed * (not last), measured=measured)


@pytest.fixture(autouse=True)
def started() -> None:
    """Start the process that runs the commands: their durations are measured."""
    warm.start()


@pytest.fixture
def conversion(hub_checkpoint: Make, tmp_path: Path) -> Command:
    source = hub_checkpoint("BertModel", max_position_embeddings=20_000)
    return Command.of(tmp_path / "outputs", "convert", source)


@pytest.fixture
def export(tmp_path: Path) -> Command:
    make_checkpoint(tmp_path / "model", num_layers=1)
    return Command.of(tmp_path / "outputs", "export", tmp_path / "model", "--onnx")


@pytest.fixture
def corpus(tmp_path: Path) -> Command:
    (tmp_path / "a.txt").write_text("\n\n".join(paragraphs() * 40))
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_bytes(trained("bert").json)
    words = ("corpus", "build", tmp_path / "a.txt", "--family", "bert")
    return Command.of(tmp_path / "outputs", *words, "--tokenizer", tmp_path / "tokenizer")


@pytest.mark.parametrize("numbers", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
def test_conversions(conversion: Command, numbers: Sequence[int]) -> None:
    conversion.interrupt_often(numbers)


@pytest.mark.long
@pytest.mark.parametrize("numbers", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
def test_building_of_corpora(corpus: Command, numbers: Sequence[int]) -> None:
    corpus.interrupt_often(numbers)


@pytest.mark.long
def test_exports(export: Command) -> None:
    export.interrupt_often(LONG)


@pytest.mark.long
def test_quantized_exports(tmp_path: Path) -> None:
    inputs = newer.newer_inputs(tmp_path / "inputs")
    command = Command.of(tmp_path / "outputs", *newer.export(inputs))
    command.interrupt_often([signal.SIGKILL] * 100)


@pytest.mark.long
@pytest.mark.parametrize("count", [2, pytest.param(100, marks=pytest.mark.long)])
def test_evaluations(count: int, tmp_path: Path) -> None:
    """The manifest has a result or lacks it, and is never damaged."""
    folder, chance = newer.newer_inputs(tmp_path / "inputs"), random.Random(count)
    began = time.monotonic()
    assert warm.zoo(*newer.evaluate(folder)).returncode == 0
    seconds = time.monotonic() - began
    whole = sorted(os.listdir(folder / "model"))
    with counted("eval") as tally:
        for number in range(1, count + 1):
            tally.sent.append(signal.SIGKILL)
            when = warm.Signal(signal.SIGKILL, chance.random() * seconds, None)
            killed = warm.zoo_with_signal(when, *newer.evaluate(folder, "--seed", str(number)))
            tally.ended += killed.returncode != 0
            check_manifest(folder / "model")
            done = warm.zoo(*newer.evaluate(folder, "--seed", str(number)))
            assert done.returncode == 0, done.stderr
            seeds = [
                e.settings.get("seed", 0) for e in check_manifest(folder / "model").evaluations
            ]
            assert seeds == list(range(number + 1))
    assert sorted(os.listdir(folder / "model")) == whole


@pytest.mark.long
def test_installations_of_plugins(tmp_path: Path) -> None:
    """A killed installation is repeated by the same command."""
    environment, chance = Environment(tmp_path / "env"), random.Random(1)
    wheel = make_wheel(tmp_path, LOGGER)
    words = ("install", "--upgrade", wheel, "--yes")
    began = time.monotonic()
    done = environment.zoo(*words)
    assert done.returncode == 0, done.stderr
    seconds = time.monotonic() - began
    with counted("plugins install") as tally:
        for _ in range(100):
            tally.sent.append(signal.SIGKILL)
            process = environment.start(*words)
            time.sleep(chance.random() * seconds)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            tally.ended += process.returncode != 0
            done = environment.zoo(*words, "--json")
            assert done.returncode == 0, done.stderr
            (plugin,) = json.loads(done.stdout)["plugins"]
            assert plugin["health"] == "ok"


Begin = Callable[[Path], list[object]]
"""Return the words of a command, without its output, for a directory of inputs."""


def pretrain(inputs: Path) -> list[object]:
    return ["pretrain", "bert", *options()]


def finetune(inputs: Path) -> list[object]:
    tree = finetune_settings("bert", labelled(inputs / "table.jsonl"), config={"dropout": 0.1})
    return ["finetune", written(inputs / "finetune.yaml", tree)]


def distill(inputs: Path) -> list[object]:
    """Two stages, the second with a cache of the teacher's logits, which is removed at first."""
    file, cache = inputs / "table.jsonl", inputs / "cache"
    if not file.exists():
        tune_teacher(inputs / "teacher", "text-classification", labelled(file))
    shutil.rmtree(cache, ignore_errors=True)
    few = {"max_steps": 6, "eval_steps": 2, "save_steps": 2}
    cached = {**few, "distillation": {"cache_teacher": str(cache)}}
    stages = {"intermediate": {"settings": few}, "prediction": {"settings": cached}}
    tree = {
        "task": "text-classification",
        "preset": "default",
        "micro_batch_size": 8,
        "logging_steps": 1,
        "data": {"train": [str(file)]},
        "student": {"name": "bert"},
        "distillation": {
            "teachers": [str(inputs / "teacher" / "model")],
            "recipe": "tinybert-task",
            "stages": stages,
        },
    }
    return ["distill", written(inputs / "distill.yaml", tree)]


def distill_without_cache(inputs: Path) -> list[object]:
    if not (inputs / "newer").exists():
        newer.newer_inputs(inputs / "newer")
    words = newer.distill(inputs / "newer")
    at = words.index("--device")  # which is given for all runs
    return words[:at] + words[at + 2 :]


def written(path: Path, tree: Mapping[str, object]) -> Path:
    """Write settings as a file."""
    path.write_text(yaml.safe_dump({**tree}))
    return path


def train(words: Sequence[object], folder: Path, when: warm.Signal | None) -> tuple[int, str]:
    """Start a run, or resume an existing one."""
    run = folder / "run"
    words = [words[0], "--resume", run] if run.exists() else [*words, "-o", run]
    words = [*words, "--device", "cpu"]
    done = warm.zoo_with_signal(when, *words) if when else warm.zoo(*words)
    return done.returncode, done.stderr


def names(folder: Path) -> set[str]:
    """Return all paths of a directory, except files that depend on the time.

    Each process of a run adds a file of events, and records which files it has verified unless
    they changed in the last seconds.
    """
    paths = [path.relative_to(folder) for path in folder.rglob("*")]
    return {
        str(path)
        for path in paths
        if not path.name.startswith("events.")
        and path != Path("home")
        and path.parts[:2] != ("home", "verified")
    }


def runs(folder: Path) -> list[Path]:
    """Return the directories of a run, or of its stages."""
    return sorted(path.parent for path in folder.rglob("metrics.jsonl"))


LABELLED = (finetune, distill, distill_without_cache)


@pytest.mark.parametrize(
    ("begin", "count"),
    [
        (pretrain, 1),
        pytest.param(pretrain, 50, marks=pytest.mark.long),
        *(pytest.param(begin, 100, marks=pytest.mark.long) for begin in LABELLED),
    ],
)
def test_training(
    begin: Begin, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill runs at random moments, resume them, and compare them with an uninterrupted one."""
    chance, whole, folder = random.Random(count), tmp_path / "whole", tmp_path / "folder"
    monkeypatch.setenv("ZOO_HOME", str(folder / "home"))
    folder.mkdir()
    words = begin(tmp_path)
    started = time.monotonic()
    code, errors = train(words, folder, None)
    assert code == 0, errors
    seconds = time.monotonic() - started
    folder.rename(whole)  # all runs have the same path, which is part of the settings of a stage
    with counted(f"{words[0]}") as tally:
        for _ in range(count):
            tally.sent.append(signal.SIGKILL)
            folder.mkdir()
            words = begin(tmp_path)
            when = warm.Signal(signal.SIGKILL, chance.random() * seconds, folder)
            killed, _ = train(words, folder, when)
            tally.ended += killed != 0
            code, errors = train(words, folder, None)
            assert code == 0, errors
            assert names(folder) == names(whole)
            for path in runs(whole):
                assert_same(path, folder / path.relative_to(whole))
            shutil.rmtree(folder)
