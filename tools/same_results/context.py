"""What all parts share: the environment, its names, the data, and models that are trained once."""

import copy
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tools.same_results.data import write_data
from tools.same_results.environment import Environment
from tools.same_results.records import Cleaner, digest, run_record

CPU = ("--offline", "--device", "cpu")
STEPS = 4
SHORT = ("--max-steps", STEPS, *CPU)
EVERY_STEP = ("--set", "logging_steps=1", "--set", "eval_steps=2", "--set", "save_steps=2")
# settings of pretraining: short rows, a small vocabulary, and an evaluation of few rows
SMALL = (
    "global_batch_tokens=512",
    "vocab_size=400",
    "seq_len=64",
    "seq_len_warmup=null",
    "eval_sequences=4",
)
SIZES = {"elmo": ("config.lstm_size=64", "seq_len=20", "global_batch_tokens=80")}
Results = Iterator[tuple[str, Any]]
Names = dict[str, Any]  # see ``names.py``


def settings_of(*pairs: str) -> list[str]:
    """Return ``--set`` before each setting."""
    return [word for pair in pairs for word in ("--set", pair)]


def small_settings(family: str = "", *, without: str = "") -> list[str]:
    """Return ``--set`` and settings of pretraining, without one of them, such as ``vocab_size``."""
    values = dict(text.split("=") for text in (*SMALL, *SIZES.get(family, ())))
    return settings_of(*(f"{name}={value}" for name, value in values.items() if name != without))


class Context:
    """An environment at work in a directory.

    Args:
        env: the installed version.
        work: directory of data, models and runs.
        source: the project's files of that version.
    """

    def __init__(self, env: Environment, work: Path, source: Path) -> None:
        self.env = env
        self.work = work
        self.source = source
        self.files = write_data(work / "data")
        self.clean = Cleaner({"WORK": work, "SOURCE": source})
        program = Path(__file__).with_name("names.py")
        self.names: Names = json.loads(env.program(program))
        self.failures: dict[str, str] = {}  # part that ended -> why
        (work / "outputs").mkdir()
        self._models: dict[str, Path] = {}
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()

    def on(self, env: Environment) -> "Context":
        """Return this context with the commands of another environment."""
        other = copy.copy(self)
        other.env = env
        return other

    def once(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return a directory that the first thread that asks for it makes."""
        with self._lock:
            lock = self._locks[name]
        with lock:
            if name not in self._models:
                path = self.work / name
                path.parent.mkdir(parents=True, exist_ok=True)
                make(path)
                self._models[name] = path
        return self._models[name]

    def pretrained(self, family: str, objective: str = "") -> Path:
        """Return the run of a tiny model of a family, by default with its recipe's objective."""
        name = f"{family}-{objective}" if objective else family

        def pretrain(path: Path) -> None:
            options = (*small_settings(family), *SHORT, *EVERY_STEP, "--keep-optimizer", "-o", path)
            if objective:
                options = ("--objective", objective, *options)
            self.env.zoo("pretrain", family, "--train", self.files["texts"], *options)

        return self.once(f"pretrained/{name}", pretrain)

    def model(self, family: str) -> Path:
        """Return the pretrained model of a family, with its head."""
        return self.pretrained(family) / "model"

    def backbone(self, family: str) -> Path:
        """Return the pretrained model of a family without its head."""

        def convert(path: Path) -> None:
            self.env.zoo("convert", self.hub(family), "--head", "none", "-o", path)

        return self.once(f"backbones/{family}", convert)

    def hub(self, family: str) -> Path:
        """Return the pretrained model of a family in the layout of the Hub."""

        def convert(path: Path) -> None:
            self.env.zoo("convert", self.model(family), "--to", "hub", "-o", path)

        return self.once(f"hub/{family}", convert)

    def refusal(self, done: "CompletedProcess[str]") -> dict[str, Any]:
        """Return the exit code and the message of a command that failed."""
        lines = self.clean(done.stderr).strip().splitlines()
        errors = [number for number, line in enumerate(lines) if line.startswith("error:")]
        first = errors[-1] if errors else -1
        message = " ".join(line.strip() for line in lines[first:])
        return {"exit code": done.returncode, "message": message}

    def attempt(self, *arguments: object) -> dict[str, Any] | None:
        """Run a command; return ``None``, or why it was refused."""
        done = self.env.run(*arguments)
        return self.refusal(done) if done.returncode else None

    def output(self, *arguments: object) -> Any:
        """Return a digest of what a command prints, or why it was refused."""
        done = self.env.run(*arguments)
        if done.returncode:
            return self.refusal(done)
        return digest(self.clean(done.stdout))

    def json(self, *arguments: object) -> Any:
        """Return the object that a command prints with ``--json``, or why it was refused."""
        done = self.env.run(*arguments, "--json")
        if done.returncode:
            return self.refusal(done)
        return json.loads(self.clean(done.stdout))

    def trained(self, run: Path, *arguments: object) -> dict[str, Any]:
        """Run a command that trains; return the record of its run, or why it was refused."""
        run.parent.mkdir(parents=True, exist_ok=True)
        refusal = self.attempt(*arguments, "-o", run)
        return refusal or run_record(run, self.clean)
