"""Every command that writes, on a disk that becomes full at several points of its output.

The error names what could not be written and says what to do. No partial output stays, except for
runs and rows that the error says how to continue.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm
from tests.disks import fill, small_disk
from tests.faults import newer
from tests.once import written_once
from tests.reporting import record

__all__ = ["small_disk"]
PAGE = 4096
GOLDEN = Path(__file__).parents[1] / "golden" / "adapterhub"
FULL = "No space left on device"
FRACTIONS = (0, 0.3, 0.6, 0.9)  # of the output's size, that the disk has room for
Words = Callable[[Path, Path], list[object]]
GPT = [f"config.{n}={v}" for n, v in {**newer.TINY, "num_heads": 2}.items()]
GPT_SETTINGS = [word for setting in GPT for word in ("--set", setting)]
STEPS = ("--max-steps", "2", "--device", "cpu", "--offline")


def unverified(source: str, target: str, *options: str) -> Words:
    more = ["--to", target, "--unverified", *options]
    return lambda i, disk: ["export", i / source, *more, "-o", disk / "out"]


def table(ending: str) -> Words:
    return lambda i, disk: [
        *("run", "classify", i / "model", "--input", i / "many.jsonl"),
        *("-o", disk / f"rows.{ending}"),
    ]


def predictions(ending: str) -> Words:
    return lambda i, disk: newer.evaluate(i, "--predictions", str(disk / f"rows.{ending}"))


QUICK: dict[str, Words] = {
    "adapter merge": lambda i, disk: ["adapter", "merge", i / "adapter", "-o", disk / "out"],
    "adapter to peft": lambda i, disk: [
        *("convert", i / "adapter", "--to", "hub", "-o", disk / "out"),
    ],
    "adapter from peft": lambda i, disk: ["convert", i / "peft", "-o", disk / "out"],
    "adapter from adapterhub": lambda i, disk: [
        *("convert", GOLDEN / "bert-pfeiffer" / "adapter", "--base", i / "golden"),
        *("-o", disk / "out"),
    ],
    "gguf": unverified("model", "gguf"),
    "ctranslate2": unverified("plain", "ctranslate2"),
    "static": lambda i, disk: [
        *("export", i / "plain", "--to", "static", "--max-drop", "1", "-o", disk / "out"),
    ],
    "run jsonl": table("jsonl"),
    "run parquet": table("parquet"),
    "run npy": lambda i, disk: [
        *("run", "embed", i / "plain", "--input", i / "many.jsonl", "-o", disk / "rows.npy"),
    ],
    "eval predictions": predictions("jsonl"),
    "eval report": lambda i, disk: newer.evaluate(i, "--report", str(disk / "report.html")),
    "eval figures": lambda i, disk: newer.evaluate(i, "--figures", str(disk / "figures")),
    "look": lambda i, disk: ["look", i / "model", "a text", "-o", disk / "page.html"],
    "compare figures": lambda i, disk: ["compare", i / "run", "--figures", disk / "figures"],
    "retokenize": lambda i, disk: [
        *("retokenize", i / "model", "--tokenizer", "train", "--train", i / "texts.txt"),
        *("-o", disk / "out"),
    ],
    "plugins new": lambda i, disk: ["plugins", "new", "mine", "-o", disk / "out"],
    "mine-negatives": lambda i, disk: [
        *("mine-negatives", i / "plain", "--input", i / "pairs.jsonl"),
        *("--text", "query", "--pair", "positive", "-o", disk / "rows.jsonl"),
    ],
}
# these write as one of the above does
SLOW: dict[str, Words] = {
    "adapter extract": lambda i, disk: [
        *("adapter", "extract", i / "model", i / "merged", "-o", disk / "out"),
    ],
    "openvino": unverified("model", "openvino"),
    "openvino int8": unverified("model", "openvino", "--dtype", "int8"),
    "openvino of a decoder": unverified("run/model", "openvino"),
    "adapter inputs": lambda i, disk: [
        *("export", i / "model", "--adapter", i / "adapter", "--adapter-inputs"),
        *("--unverified", "-o", disk / "out"),
    ],
    "run tsv": table("tsv"),
    "run csv": table("csv"),
    "gguf q8_0": unverified("model", "gguf", "--dtype", "q8_0"),
    "eval predictions csv": predictions("csv"),
    "eval predictions parquet": predictions("parquet"),
    "bench figures": lambda i, disk: [
        *("bench", i / "model", "--seq-len", "16", "--no-startup", "--figures", disk / "figures"),
    ],
    "finetune seeds": lambda i, disk: [*newer.finetune(i), "--seeds", "2", "-o", disk / "out"],
    "finetune an adapter": lambda i, disk: [
        *("finetune", i / "model", *newer.TASK, "--train", i / "table.jsonl"),
        *("--adapter", "lora", *newer.FEW, "-o", disk / "out"),
    ],
    "distill": lambda i, disk: [*newer.distill(i), "-o", disk / "out"],
    "distill static": lambda i, disk: [
        *("distill", "--teacher", i / "plain", "--student", "static"),
        *("--train", i / "texts.txt", *STEPS, "-o", disk / "out"),
    ],
    "pretrain": lambda i, disk: [*newer.pretrain(i), *GPT_SETTINGS, "-o", disk / "out"],
    "pretrain that continues a run": lambda i, disk: [
        *("pretrain", "--continue-from", i / "run", "--reset-optimizer", *STEPS),
        *("-o", disk / "out"),
    ],
}
CONTINUED = ("finetune", "distill", "pretrain")  # what stays is continued by --resume


@pytest.fixture
def inputs() -> Path:
    return written_once("full-disks", _write)


def _write(folder: Path) -> None:
    shutil.rmtree(folder)
    newer.newer_inputs(folder)
    texts = [json.loads(line)["text"] for line in (folder / "table.jsonl").open()]
    many = "".join(f"{json.dumps({'text': text})}\n" for text in texts * 30)
    (folder / "many.jsonl").write_text(many)
    pairs = [json.dumps({"query": text, "positive": f"{text} too"}) for text in texts]
    (folder / "pairs.jsonl").write_text("\n".join(pairs))
    adapter = ["--adapter", "lora", *newer.FEW, "-o", folder / "trained"]
    model, table = folder / "model", folder / "table.jsonl"
    for words in (
        ["convert", model, "--head", "none", "-o", folder / "plain"],
        ["finetune", model, *newer.TASK, "--train", table, *adapter],
        ["convert", folder / "trained/model", "--to", "hub", "-o", folder / "peft"],
        ["adapter", "merge", folder / "trained/model", "-o", folder / "merged"],
        [*newer.pretrain(folder), *GPT_SETTINGS, "-o", folder / "run"],
        ["convert", GOLDEN / "bert-pfeiffer" / "base", "-o", folder / "golden"],
    ):
        done = warm.zoo(*words)
        assert done.returncode == 0, done.stderr
    (folder / "adapter").symlink_to(folder / "trained/model")


def used(disk: Path) -> int:
    state = os.statvfs(disk)
    return (state.f_blocks - state.f_bfree) * state.f_frsize


def emptied(disk: Path) -> None:
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.by_default("run jsonl", "gguf", "eval report", "plugins new")
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in SLOW)]
)
def test_a_disk_that_becomes_full(inputs: Path, small_disk: Path, name: str) -> None:
    words = (QUICK | SLOW)[name](inputs, small_disk)
    home = str(small_disk.parent / "home")
    done = warm.zoo(*words, ZOO_HOME=home)
    assert done.returncode == 0, done.stderr
    size = used(small_disk)
    for fraction in FRACTIONS if name in SLOW else FRACTIONS[1:3]:
        emptied(small_disk)
        fill(small_disk, int(size * fraction) // PAGE * PAGE)
        done = warm.zoo(*words, ZOO_HOME=home)
        last = done.stderr.splitlines()[-1]
        clear = done.returncode == 2 and FULL in last and str(small_disk) in last
        left = [path for path in small_disk.rglob("*") if path.name != "filler"]
        says = "zoo " in last or "make room" in last
        kept = name.startswith(CONTINUED) or all(path.suffix == ".svg" for path in left[1:])
        staged = [path for path in left if ".zoo-" in path.name]
        record("full-disk", cases=1, failures=int(not (clear and says and kept)))
        assert clear and says, done.stderr
        assert kept and not staged, left
        assert "Traceback" not in done.stderr
        if not left:
            assert "nothing was left behind" in last


@pytest.mark.long
def test_a_run_of_several_seeds_goes_on_with_room(inputs: Path, small_disk: Path) -> None:
    words = [*newer.finetune(inputs), "--seeds", "2", "-o", small_disk / "out"]
    whole = small_disk.parent / "whole"
    assert warm.zoo(*words[:-1], whole).returncode == 0
    fill(small_disk, 600_000)  # not enough for a copy of the median model
    done = warm.zoo(*words)
    assert done.returncode == 2, done.stderr
    hint = f"the runs next to it remain; make room, and resume {small_disk}/out"
    assert done.stderr.splitlines()[-1].endswith(hint)
    (small_disk / "filler").unlink()
    done = warm.zoo("finetune", "--resume", small_disk / "out")
    assert done.returncode == 0, done.stderr
    name = "model/model.safetensors"
    assert (small_disk / "out" / name).read_bytes() == (whole / name).read_bytes()


LONG = pytest.mark.long


@pytest.mark.long
@pytest.mark.parametrize(
    "room", [pytest.param(0, marks=LONG), PAGE, pytest.param(12 * PAGE, marks=LONG)]
)
def test_rows_go_on_with_room(inputs: Path, small_disk: Path, room: int) -> None:
    """The disk has no room for the record of the rows, for nothing but it, or for some rows."""
    rows, whole = small_disk / "rows.jsonl", small_disk.parent / "whole.jsonl"
    words = ["run", "classify", inputs / "model", "--input", inputs / "many.jsonl"]
    assert warm.zoo(*words, "-o", whole).returncode == 0
    fill(small_disk, room)
    done = warm.zoo(*words, "-o", rows)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and FULL in last and str(rows) in last
    assert not rows.exists()
    (small_disk / "filler").unlink()
    done = warm.zoo(*words, "-o", rows, "--resume")
    assert done.returncode == 0, done.stderr
    assert rows.read_bytes() == whole.read_bytes()
    assert [path.name for path in small_disk.iterdir()] == [rows.name]


def test_results_are_printed_before_a_figure_fails(inputs: Path, small_disk: Path) -> None:
    fill(small_disk, 0)
    done = warm.zoo(*newer.evaluate(inputs, "--figures", str(small_disk / "figures"), "--json"))
    assert done.returncode == 2 and FULL in done.stderr
    assert json.loads(done.stdout.splitlines()[0])["metrics"]["samples"] == 40


# ``zoo check`` never downloads
CHECKED = [word for word in newer.pretrain(Path())[1:] if word != "--offline"]
TEMPORARY: dict[str, tuple[list[object], str]] = {
    "standard input": (["eval", "model", *newer.TASK, "--eval", "-"], '{"text": "a"}\n' * 9000),
    "search": (["run", "search", "plain", "a text", "--corpus", "many.jsonl"], ""),
    "static": (["export", "plain", "--to", "static", "--max-drop", "1", "-o", "{out}"], ""),
    "check resume": (["check", "resume", *CHECKED, *GPT_SETTINGS], ""),
}
# bytes that the disk has room for, where it becomes full later
ROOM = {"check resume": (PAGE, 40 * PAGE)}


FAST = ("standard input",)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.long]) for n in TEMPORARY]
)
def test_a_full_disk_of_temporary_files(inputs: Path, small_disk: Path, name: str) -> None:
    words, stdin = TEMPORARY[name]
    out, home = small_disk.parent / "out", str(small_disk.parent / "home")
    for room in ROOM.get(name, (2 * PAGE,)):
        emptied(small_disk)
        fill(small_disk, room)
        done = subprocess.run(
            [sys.executable, "-m", "zoo", *(str(word).format(out=out) for word in words)],
            input=stdin,
            cwd=inputs,
            env={**os.environ, "TMPDIR": str(small_disk), "ZOO_HOME": home},
            capture_output=True,
            text=True,
            check=False,
        )
        last = done.stderr.splitlines()[-1]
        assert done.returncode == 2, done.stderr
        assert last.startswith(f"error: cannot write temporary files in {small_disk}: {FULL}")
        assert "set TMPDIR" in last
        assert not out.exists()
