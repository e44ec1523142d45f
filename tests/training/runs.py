"""Settings of runs of about one second, and helpers for tests of the trainer."""

import fnmatch
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests import warm
from zoo.plugins import get_family, installed
from zoo.training.config.overrides import deep_merge
from zoo.training.config.schema import TrainConfig, pretrain_config
from zoo.training.distributed.context import DistContext
from zoo.training.logging.report import REPORT
from zoo.training.run import PretrainRun, Run
from zoo.training.state.checkpoints import Tensors, load_tensors, read_meta
from zoo.training.state.progress import list_checkpoints
from zoo.training.state.verify import differing_files

# the beginnings of all chapters of two books: a whole book takes longer to tokenize than a run
BOOKS = Path(__file__).parents[1] / "fixtures" / "books"
TEXT, EVAL_TEXT = BOOKS / "alice.txt", BOOKS / "looking_glass.txt"
DATA = ("--train", str(TEXT), "--eval", str(EVAL_TEXT))
SMALL: Mapping[str, Any] = {
    "data": {"paths": [str(TEXT)], "eval_paths": [str(EVAL_TEXT)]},
    "vocab_size": 400,
    "seq_len": 64,
    "seq_len_warmup": None,
    "global_batch_tokens": 256,
    "micro_batch_tokens": 128,
    "max_steps": 12,
    "logging_steps": 1,
    "eval_steps": 4,
    "eval_sequences": 4,
    "save_steps": 3,
    "keep_optimizer": True,  # so that copies resume from any checkpoint
    "lr_scheduler": {"warmup_steps": 2},
}
# Fields of a configuration that make a model a quarter as wide as "tiny", of most families and of
# some. At the width of "tiny", the products of matrices take most of a step.
WIDTH: Mapping[str, Any] = {"hidden_size": 32, "num_heads": 2, "intermediate_size": 64}
FURTHER_WIDTHS: Mapping[str, Any] = {
    "num_kv_heads": 1,
    "head_size": 16,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 64,
    "lstm_size": 64,
    "projection_size": 32,
    "character_size": 16,
    "filters": [[1, 16], [2, 32], [3, 32]],
}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


@cache
def width_of(family: str) -> Mapping[str, Any]:
    """Return the fields that make a family narrow; a reference to a model has none."""
    if family not in installed():
        return {}
    fields = get_family(family).sizes()["tiny"].__struct_fields__
    widths = {**WIDTH, **FURTHER_WIDTHS}
    return {name: width for name, width in widths.items() if name in fields}


def small(family: str, **changes: Any) -> TrainConfig:
    return pretrain_config(tree(family, **changes), {})


def tree(family: str, **changes: Any) -> dict[str, Any]:
    """Return the small settings of a family, or of the model that a run starts from."""
    width = {} if "init_from" in changes else width_of(family)
    return deep_merge({"family": family, "config": width}, SMALL, changes)


def run_training(path: Path, family: str, **changes: Any) -> Path:
    PretrainRun(tree(family, **changes), DistContext.initialize("cpu"), path).start()
    return path


def options(**changes: Any) -> list[str]:
    """Return the small settings as options of the command line; ``None`` leaves one out.

    The fields of ``config`` are those of most families.
    """
    settings = deep_merge(SMALL, {"config": WIDTH}, changes).items()
    return [f"--set={name}={json.dumps(value)}" for name, value in settings if value is not None]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "zoo", "pretrain", "--device", "cpu", *arguments]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.zoo("pretrain", "--device", "cpu", *arguments)


def finish_in_two_processes(*arguments: str) -> None:
    """Run a training command in two processes of one run."""
    done = warm.in_processes(2, *arguments, "--device", "cpu")
    assert done.returncode == 0, done.stderr[-3000:]


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait for a condition while a process is running."""
    until = time.monotonic() + 300  # also on a busy machine
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.005)


def lines(run: Path) -> int:
    log = run / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def records(run: Path, split: str = "train") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record for record in lines if record["split"] == split]


def tensors(checkpoint: Path) -> dict[str, Tensors]:
    """Return file stem -> tensors of a checkpoint."""
    settings = json.loads((checkpoint / "state.json").read_bytes())["settings"]
    return load_tensors(checkpoint, read_meta(checkpoint, steps=1 << 40, settings=[settings]))


def flip(path: Path, place: int = -1, bit: int = 0) -> None:
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def assert_same(first: Path, second: Path, *, ignore: Sequence[str] = ()) -> None:
    """Compare the directories of two runs that began apart: all files, and what they say.

    The commands of both runs, and the directories in which they began, may differ.

    Args:
        first: directory of a run.
        second: directory of another run.
        ignore: patterns of the names of files that differ for a reason that the test explains.
    """
    differing = [
        name
        for name in differing_files(first, second)
        if _content(first / name) != _content(second / name)
        and not any(fnmatch.fnmatch(name, pattern) for pattern in ignore)
    ]
    assert not differing, differing
    if REPORT not in ignore:
        lines = zip(_report(first), _report(second), strict=True)
        changes = [pair for pair in lines if pair[0] != pair[1]]
        assert not changes, changes
    assert [*(first / "model").glob("*.safetensors")], "a final model has weights"


def assert_equal_files(first: Path, second: Path) -> None:
    """Compare two directories of one run byte for byte, except times."""
    differing = differing_files(first, second)
    assert not differing, differing
    assert _report(first) == _report(second), "the reports differ"


def _content(path: Path) -> Any:
    """Return the content of a file without the command of a run, its settings and directory."""
    if not path.is_file() or path.suffix != ".json":
        return path.read_bytes() if path.is_file() else None
    try:
        record = json.loads(path.read_bytes())
    except ValueError:
        return path.read_bytes()
    for name in ("command", "requested", "working_directory", "digest"):
        record.pop(name, None)
        (record.get("training") or {}).pop(name, None)
    return record


# Parts of a report's lines with times, memory or the command.
NOT_COMPARED = (
    "<dt>time<",
    "<dt>tokens a second<",
    "<dt>peak memory<",
    "<figcaption>Tokens per second",
    "<pre>cd ",
)


def _report(run: Path) -> list[str]:
    """Return the lines of a run's report that hold no times, and no command."""
    lines = (run / REPORT).read_text("utf-8").splitlines()
    return [line for line in lines if not any(part in line for part in NOT_COMPARED)]


def cut(run: Path, step: int) -> None:
    """Remove everything after a checkpoint, as if the process had been killed before the next."""
    for after, path in list_checkpoints(run).items():
        if after > step:
            shutil.rmtree(path)
    shutil.rmtree(run / "model")


def assert_resumes_from(
    whole: Path, folder: Path, *steps: int, kind: type[Run] = PretrainRun
) -> None:
    """Resume copies of a finished run from these checkpoints: each ends as the run did."""
    for step in steps:
        shutil.copytree(whole, copy := folder / f"from-{step}")
        cut(copy, step)
        kind({}, DistContext.initialize("cpu")).resume(copy)
        assert_equal_files(whole, copy)
