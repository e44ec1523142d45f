"""Processes that are killed at any moment, and resumed: runs end bit for bit as others."""

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.distillation.making import pretrained, settings, task_settings, tune_teacher
from tests.finetuning.making import labelled
from tests.training.runs import assert_same, lines, wait_until

pytestmark = pytest.mark.long  # processes that import torch
ON_CPU = ("--no-score", "--device", "cpu")
TASK = "text-classification"


def kill_when(condition: Callable[[], bool], seed: int, *arguments: str) -> None:
    """Start or resume a run, and kill it some time after a condition holds, in its next steps."""
    command = [sys.executable, "-m", "zoo", "distill", *arguments, *ON_CPU]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_until(condition, process)
    time.sleep(random.Random(seed).uniform(0, 0.1))
    process.kill()
    process.communicate()


def finish(run: Path) -> None:
    done = warm.zoo("distill", "--resume", run, *ON_CPU)
    assert done.returncode == 0, done.stderr


def train_whole(tree: dict[str, Any], folder: Path) -> tuple[Path, Path, Path]:
    """Train an unbroken run; return its directory, the path that it had, and its settings file.

    Another run with these settings at that path has the same files.
    """
    whole, run, file = folder / "whole", folder / "run", folder / "run.yaml"
    file.write_text(yaml.safe_dump(tree))
    done = warm.zoo("distill", file, "-o", run, *ON_CPU)
    assert done.returncode == 0, done.stderr
    run.rename(whole)
    return whole, run, file


def test_a_run_with_projections_and_dropout(tmp_path: Path) -> None:
    terms = {"hidden": {"kind": "hidden-mse", "embeddings": True, "layers": "uniform"}}
    student = {"num_layers": 1, "hidden_size": 64, "intermediate_size": 128, "dropout": 0.1}
    tree = settings(
        pretrained("bert"),
        "distilbert",
        student=student,
        distillation={"terms": terms},
        max_steps=40,
    )
    whole, run, file = train_whole(tree, tmp_path)
    kill_when(lambda: lines(run) >= 5, 0, str(file), "-o", str(run))
    kill_when(lambda: lines(run) >= 20, 1, "--resume", str(run))
    finish(run)
    assert_same(whole, run)


def test_a_run_with_a_cache_of_the_teachers_outputs(tmp_path: Path) -> None:
    """What the killed process had not written is computed again, in the same batches."""
    cache = tmp_path / "cache"
    tree: dict[str, Any] = settings(
        pretrained("gpt"),
        "gpt",
        distillation={"recipe": "logits", "cache_teacher": str(cache)},
        max_steps=40,
    )
    whole, run, file = train_whole(tree, tmp_path)
    shutil.rmtree(cache)
    kill_when(lambda: lines(run) >= 5, 2, str(file), "-o", str(run))
    finish(run)
    assert_same(whole, run)


def test_labelled_data_with_a_new_tokenizer(tmp_path: Path) -> None:
    """The student has a tokenizer of its own, of which the run's manifest has the settings."""
    table = labelled(tmp_path / "t.jsonl")
    teacher = tune_teacher(tmp_path / "teacher", TASK, table)
    few = {"max_steps": 40, "vocab_size": 60, "tokenizer": "train"}
    tree: dict[str, Any] = task_settings([teacher], "bert", TASK, table, **few)
    tree["student"] |= {"num_layers": 1}
    tree["distillation"] |= {"recipe": "logits"}
    whole, run, file = train_whole(tree, tmp_path)
    kill_when(lambda: lines(run) >= 5, 5, str(file), "-o", str(run))
    kill_when(lambda: lines(run) >= 20, 6, "--resume", str(run))
    finish(run)
    assert_same(whole, run)


def test_stages(tmp_path: Path) -> None:
    table = labelled(tmp_path / "t.jsonl")
    teacher = tune_teacher(tmp_path / "teacher", TASK, table, config={"num_layers": 4})
    steps = {"settings": {"max_steps": 20, "eval_steps": 4}}
    stages = dict.fromkeys(("intermediate", "prediction"), steps)
    recipe = {"recipe": "tinybert-task", "stages": stages}
    tree: dict[str, Any] = task_settings([teacher], "bert", TASK, table, distillation=recipe)
    whole, run, file = train_whole(tree, tmp_path)
    kill_when(lambda: lines(run / "intermediate") >= 5, 3, str(file), "-o", str(run))
    kill_when(lambda: lines(run / "prediction") >= 5, 4, "--resume", str(run))
    finish(run)
    for stage in stages:
        assert_same(whole / stage, run / stage)
