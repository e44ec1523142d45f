"""Paths that are FIFOs, folders or devices, and names that are not UTF-8 or have line feeds.

Every command refuses what it cannot use in one line, and begins nothing.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm
from tests.faults import newer
from tests.finetuning.making import labelled, texts
from tests.inference.making import make_checkpoint
from tests.reporting import record
from zoo.checkpoint import load_checkpoint

ODD = os.fsdecode(b"o\xffdd")
TRAIN = ("--max-steps", "1", "--device", "cpu", "--offline")
CLASSIFIER = ("--task", "text-classification")
FEW = ("--set", "config.num_layers=1", "--set", "vocab_size=300", *TRAIN)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with odd files, a table and a model, in which commands run."""
    folder = tmp_path / "scene"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("fifo", "fifo.jsonl", "fifo.yaml"):
        os.mkfifo(name)
    for name in ("folder", "folder.yaml"):
        Path(name).mkdir()
    Path("device.jsonl").symlink_to("/dev/zero")
    Path("loop.jsonl").symlink_to("loop.jsonl")
    labelled(Path("table.jsonl"))
    labelled(Path(f"{ODD}.jsonl"))
    Path("texts.txt").write_text("\n\n".join(texts(40)))
    make_checkpoint(Path("model"), num_layers=1)
    make_checkpoint(Path(ODD), num_layers=1)
    newer.newer_inputs(folder / "newer")
    return folder


TABLES = ("fifo.jsonl", "device.jsonl", "loop.jsonl", "missing.jsonl")
REFUSED: dict[str, tuple[tuple[str, ...], int]] = {
    **{
        f"train {n}": (("finetune", "bert", *CLASSIFIER, "--train", n, "-o", "r"), 4)
        for n in TABLES
    },
    "eval of a run": (
        ("finetune", "bert", *CLASSIFIER, "--train", "table.jsonl", "--eval", "fifo", "-o", "r"),
        4,
    ),
    "data of a corpus": (
        ("corpus", "build", "fifo", "-o", "c", "--family", "bert", "--tokenizer", "train"),
        4,
    ),
    "tokenizer": (
        ("corpus", "build", "texts.txt", "-o", "c", "--family", "bert", "--tokenizer", "fifo"),
        2,
    ),
    **{
        f"recipe of {verb} {name}": ((verb, name, "-o", "r"), 2)
        for verb in ("pretrain", "finetune", "distill")
        for name in ("fifo.yaml", "folder.yaml")
    },
    "model of info": (("info", "./fifo"), 2),
    "model of verify": (("verify", "./fifo"), 2),
    "directory of push": (("push", "./fifo", "a/b"), 2),
    "training on a name that is not UTF-8": (
        ("finetune", "bert", *CLASSIFIER, "--train", f"{ODD}.jsonl", "-o", "r", *FEW),
        2,
    ),
    "pretraining into one": (
        ("pretrain", "bert", "--train", "texts.txt", "-o", f"r{ODD}", *FEW),
        2,
    ),
    "a model in one": (("run", "embed", f"./{ODD}", "a b"), 2),
    "evaluation of a model in one": (
        ("eval", f"./{ODD}", *CLASSIFIER, "--eval", "table.jsonl"),
        2,
    ),
    "export into one": (("export", "model", "--onnx", "-o", f"x{ODD}"), 2),
    "distilling into one": (("distill", "newer/distill.yaml", *TRAIN, "-o", f"r{ODD}"), 2),
    **{
        f"cache of a teacher in {name}": (
            ("distill", "newer/distill.yaml", *TRAIN, "-o", "r", "--cache-teacher", name),
            2,
        )
        for name in ("fifo", "table.jsonl", f"k{ODD}")
    },
    "push to one": (("push", "newer/hub", f"a{ODD}/b"), 2),
    **{
        f"installation of {name}": (("plugins", "install", f"./{name}", "--yes"), 2)
        for name in ("fifo", "device.jsonl")
    },
    "uninstallation of one": (("plugins", "uninstall", ODD, "--yes"), 2),
}


@pytest.mark.by_default(
    "train fifo.jsonl",
    "train missing.jsonl",
    "eval of a run",
    "data of a corpus",
    "tokenizer",
    "cache of a teacher in fifo",
)
@pytest.mark.parametrize("case", REFUSED)
def test_one_line(case: str, scene: Path) -> None:
    words, code = REFUSED[case]
    before = set(os.listdir(scene))
    done = warm.zoo(*words)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    left = sorted(set(os.listdir(scene)) - before)
    ends_right = (done.returncode, len(errors), left) == (code, 1, [])
    record("odd-names", cases=1, failures=int(not ends_right))
    assert (done.returncode, len(errors), left) == (code, 1, []), done.stderr
    assert done.stderr.endswith(errors[0] + "\n")


WRITERS: dict[str, Callable[[Path], list[object]]] = {
    "finetune": newer.finetune,
    "distill": newer.distill,
    "pretrain": newer.pretrain,
    "export": newer.export,
}


@pytest.mark.parametrize("verb", WRITERS)
def test_a_working_directory_that_is_not_utf8(verb: str, scene: Path) -> None:
    """Runs record it, and the checker of ONNX takes no such path."""
    folder = scene / f"cwd{ODD}"
    folder.mkdir()
    done = warm.zoo(*WRITERS[verb](scene / "newer"), "-o", "out", cwd=folder)
    ends_right = done.returncode == 2 and "is not UTF-8; rename it" in done.stderr
    left = os.listdir(folder)
    record("odd-names", cases=1, failures=int(not ends_right or bool(left)))
    assert ends_right, done.stderr
    assert left == []


def test_uploads_and_conversions_in_odd_places_succeed(scene: Path) -> None:
    made = warm.zoo("convert", "newer/model", "--to", "hub", "-o", f"hub{ODD}")
    plan = warm.zoo("push", f"./hub{ODD}", "someone/model", "--json")
    codes = [made.returncode, plan.returncode]
    record("odd-names", cases=2, failures=sum(map(bool, codes)))
    assert codes == [0, 0], made.stderr + plan.stderr
    names = [file["name"] for file in json.loads(plan.stdout)["files"]]
    assert "model.safetensors" in names and ".zoo.json" not in names


@pytest.mark.parametrize("option", ["--calibration", "--eval"])
def test_texts_of_an_export_are_files(option: str, scene: Path) -> None:
    from zoo.errors import SourceError
    from zoo.exporting.quantization.texts import read_texts

    with pytest.raises(SourceError, match="fifo is not a regular file"):
        read_texts(Path("fifo"))
    words = ("export", "model", "--onnx", "--int8", "static", "-o", "x")
    texts_of = {"--calibration": "texts.txt", option: "fifo"}
    done = warm.zoo(*words, *(word for pair in texts_of.items() for word in pair))
    assert done.returncode in (2, 4) and "is a bug" not in done.stderr
    assert not Path("x").exists()


def test_results_on_a_file_with_an_odd_name_are_recorded(scene: Path) -> None:
    run = warm.zoo("finetune", "bert", *CLASSIFIER, "--train", "table.jsonl", "-o", "run", *FEW)
    assert run.returncode == 0, run.stderr
    for name in (f"{ODD}.jsonl", "a\nb.jsonl"):
        labelled(Path(name))
        done = warm.zoo("eval", "run/model", *CLASSIFIER, "--eval", name)
        assert done.returncode == 0, done.stderr
    done = warm.zoo("eval", "run/model", *CLASSIFIER, "--eval", "fifo")
    assert done.returncode == 4 and "fifo is not a regular file" in done.stderr
    names = [next(iter(e.data)) for e in load_checkpoint(Path("run/model")).manifest.evaluations]
    assert names == ["o\\xffdd.jsonl", "a\nb.jsonl"]
