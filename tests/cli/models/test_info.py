"""``zoo info``: what a directory is, its numbers, and the next command."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.imports import modules_after
from tests.inference.making import make_checkpoint
from tests.training.runs import run_training
from zoo.cli import cli


def info(*arguments: object) -> str:
    done = CliRunner().invoke(cli, ["info", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def following(shown: str) -> list[str]:
    """Return the words of the command that is named last."""
    return shlex.split(shown.splitlines()[-1].removeprefix("next: "))


def test_a_model_has_an_outline_and_digests_only_when_asked(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", "masked-lm", num_layers=3)
    path, longest = checkpoint.path, checkpoint.family.max_seq_len(checkpoint.config)
    shown, verbose = info(path), info(path, "-v")
    rows = [line.split() for line in shown.splitlines()]
    (layers,) = [row for row in rows if row and row[0] == "layers.0\N{EN DASH}2"]
    assert layers[1:3] == ["3", "\N{MULTIPLICATION SIGN}"]
    digest = json.loads((path / "zoo.json").read_text())["files"]["model.safetensors"]["blake3"]
    assert digest not in shown and digest in verbose and "PostNormBlock" in verbose
    size = sum(file.stat().st_size for file in path.iterdir())
    (disk,) = [line for line in shown.splitlines() if line.startswith("on disk")]
    assert disk.split()[2:4] == [f"{size / 1000:.0f}", "kB"]
    assert "None" not in shown
    assert ["longest", "text", str(longest), "tokens"] in rows
    assert following(shown)[:4] == ["zoo", "run", "fill-mask", str(path)]
    assert "dtypes" in json.loads(info(path, "--json"))


def test_an_export_lists_its_dtypes(small_export: Path) -> None:
    shown = info(small_export / "export")
    (row,) = [line.split() for line in shown.splitlines() if line.startswith("float32")]
    files = (small_export / "export" / "onnx").iterdir()
    size = sum(file.stat().st_size for file in files)
    assert row == ["float32", f"{size / 1000:.0f}", "kB", "onnx/model.onnx"]
    assert shown.startswith("ONNX export")
    assert following(shown)[:2] == ["zoo", "run"]


def test_a_run_says_how_far_it_is(tmp_path: Path) -> None:
    run = run_training(tmp_path / "run", "gpt")
    shown = info(run)
    assert "finished, step 12" in shown and "validation" in shown
    assert following(shown) == ["zoo", "info", str(run / "model")]
    assert json.loads(info(run, "--json"))["finished"] is True
    assert "torch" not in modules_after("info", str(run))
    (run / "final.json").unlink()
    unfinished = info(next((run / "checkpoints").iterdir()))
    assert "not finished" in unfinished
    assert following(unfinished) == ["zoo", "pretrain", "--resume", str(run)]
    checkpoints = sorted((run / "checkpoints").iterdir())
    last_step = int(checkpoints[-1].name.removeprefix("step-"))
    assert f"not finished, step {last_step}\n" in info(run)
    # The log may be ahead of the step from which a run resumes, as after a kill.
    checkpoints[-1].rename(run / "checkpoints" / "step-00000007")
    for path in checkpoints[:-1]:
        shutil.rmtree(path)
    assert "not finished, step 7\n" in info(run)


@pytest.mark.parametrize("kind", ["corpus", "hub"])
def test_other_directories_name_the_next_command(tmp_path: Path, kind: str) -> None:
    model = make_checkpoint(tmp_path / "model").path
    if kind == "hub":
        arguments = ["convert", str(model), "--to", "hub", "-o", str(tmp_path / kind)]
    else:
        (tmp_path / "a.txt").write_text("a b c d\n\n" * 50)
        tokenizer = ["--tokenizer", "train", "--family", "bert", "--vocab-size", "30"]
        arguments = ["corpus", "build", str(tmp_path / "a.txt"), *tokenizer]
        arguments += ["-o", str(tmp_path / kind)]
    CliRunner().invoke(cli, arguments, catch_exceptions=False)
    command = {"hub": ["zoo", "push"], "corpus": ["zoo", "pretrain"]}[kind]
    assert following(info(tmp_path / kind))[:2] == command
