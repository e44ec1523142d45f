"""The records of ``tools.same_results``: digests by hand, differences, and a case for each name."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tools.same_results.collecting import CHECKS, PARTS
from tools.same_results.comparing import compare
from tools.same_results.environment import Environment
from tools.same_results.names import LISTS
from tools.same_results.parts.resumed import cut, names_of_runs
from tools.same_results.records import (
    Cleaner,
    key_paths,
    layout,
    log_record,
    require_cases,
    tensors_digest,
)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return {make.__name__: make() for make in LISTS}


def missing_cases(names: dict[str, Any]) -> list[str]:
    """Return the message of each part that lacks a case."""
    messages = []
    for check in CHECKS.values():
        try:
            check(names)
        except SystemExit as error:
            messages.append(str(error))
    return messages


@pytest.fixture(scope="module")
def complete_names(names: dict[str, Any]) -> dict[str, Any]:
    """The names, if each has a case; else the first test says which has none."""
    if missing_cases(names):
        pytest.skip("a case is missing")
    return names


def test_every_name_has_a_case(names: dict[str, Any]) -> None:
    assert missing_cases(names) == []
    assert CHECKS.keys() == PARTS.keys() - {"commands", "conversions", "plugins"}


@pytest.mark.parametrize(
    ("part", "path", "message"),
    [
        ("tasks", ("task_parts", "train"), "no case for the task new"),
        ("tasks", ("task_parts", "evaluate"), "no case for the evaluation new"),
        ("tasks", ("task_parts", "predict"), "no case for the task of zoo run new"),
        ("tasks", ("task_parts", "train", "pet"), "no case for the settings of pet new"),
        ("tasks", ("reranker_losses", "losses"), "no case for the reranker loss new"),
        ("embeddings", ("embedding_losses",), "no case for the embedding loss new"),
        (
            "embeddings",
            ("task_parts", "train", "late-interaction"),
            "no case for the settings of late-interaction new",
        ),
        ("adapters", ("adapters",), "no case for the adapter new"),
        ("adapters", ("adapters", "lora"), "no case for the settings of the adapter lora new"),
        ("exports", ("targets",), "no case for the export target new"),
        ("exports", ("targets", "onnx"), "no case for the precision of ONNX new"),
        ("families", ("families", "bert"), "no case for the head of bert new"),
        ("distillation", ("distillation_losses",), "no case for the distillation loss new"),
        ("distillation", ("distillation_losses", "kl"), "no case for the settings of kl new"),
        ("distillation", ("recipes",), "no case for the recipe new"),
        ("measurements", ("suites",), "no case for the suite new"),
        ("measurements", ("probes",), "no case for the probing task new"),
        ("objectives", ("objectives",), "no case for the objective new"),
    ],
)
def test_a_name_without_a_case_ends_the_program(
    part: str, path: tuple[str, ...], message: str, complete_names: dict[str, Any]
) -> None:
    changed = copy.deepcopy(complete_names)
    table: Any = changed
    for key in path:
        table = table[key]
    if isinstance(table, list):
        table.append("new")
    else:
        table["new"] = []
    with pytest.raises(SystemExit, match=message):
        CHECKS[part](changed)


def test_a_digest_of_tensors_depends_on_names_shapes_dtypes_and_values(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    folders: dict[str, dict[str, Any]] = {
        "same": {"a": values, "b": values[:2]},
        "name": {"a": values, "c": values[:2]},
        "shape": {"a": values.reshape(2, 3), "b": values[:2]},
        "dtype": {"a": values.view(np.int32), "b": values[:2]},
        "value": {"a": values[::-1].copy(), "b": values[:2]},
    }
    for name, tensors in folders.items():
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
    again = tmp_path / "again" / "model"  # in another order and place, with other metadata
    again.mkdir(parents=True)
    reordered = dict(reversed(folders["same"].items()))
    save_file(reordered, again / "model.safetensors", {"written": "later"})
    digests = {name: tensors_digest(tmp_path / name) for name in folders}
    assert len(set(digests.values())) == len(folders)
    assert tensors_digest(tmp_path / "again") == digests["same"]


def test_keys_are_paths_with_types() -> None:
    value = {"a": {"b": 1, "c": [{"d": None}, {"d": 2.5}]}, "e": [], "0123456789abcdef": "x"}
    assert list(key_paths(value)) == [
        "a.b: int",
        "a.c[].d: NoneType",
        "a.c[].d: float",
        "e: list",
        "HEX: str",
    ]


def test_a_layout_names_files_and_keys_but_no_directories(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("data:\n  train: [x.tsv]\n")
    (run / "run.json").write_text(json.dumps({"sources": {f"{tmp_path}/x.tsv": 1}}))
    (run / "events.out.tfevents.123.host.7.0").touch()
    (run / "metrics.jsonl").write_text('{"step": 1}\n{"loss": 2.0}\n')
    assert layout(run, Cleaner({"WORK": tmp_path})) == {
        "config.yaml": ["data.train[]: str"],
        "events.out.tfevents": None,
        "metrics.jsonl": ["[].loss: float", "[].step: int"],
        "run.json": ["sources.WORK/x.tsv: int"],
    }


def test_a_log_is_recorded_without_times(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"step": 1, "split": "train", "loss": 1.23456789, "seconds": 3.0},
        {"step": 2, "split": "train", "loss": 0.5, "seconds": 3.0},
        {"step": 2, "split": "validation", "loss": 0.25, "metrics": {"f1": 1 / 3}},
    ]
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = log_record(tmp_path)
    assert record["losses"] == [1.23457, 0.5]
    assert record["evaluations"] == {"validation": {"loss": 0.25, "f1": 0.333333}}
    lines[0]["seconds"] = 4.0
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert log_record(tmp_path) == record
    lines[0]["loss"] = 1.2345678900000001e0 + 1e-12  # the same with six digits
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    changed = log_record(tmp_path)
    assert changed["losses"] == record["losses"] and changed["log"] != record["log"]


def test_a_run_is_cut_after_its_first_checkpoint(tmp_path: Path) -> None:
    """What was written before it, such as targets of a teacher, stays."""
    run = tmp_path / "run"
    files = [
        "targets/train.jsonl",
        "first/run.json",
        "first/metrics.jsonl",
        "first/checkpoints/step-00000002/state.json",
        "first/checkpoints/step-00000004/state.json",
        "first/model/config.json",
        "second/metrics.jsonl",
        "model/config.json",
    ]
    for seconds, name in enumerate(files):
        file = run / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"kind": "distill"}')
        os.utime(file, (seconds, seconds))
    (run / "stages.json").write_text('{"stages": ["first", "second"]}')
    assert list(names_of_runs(tmp_path, ["*"])) == ["run"]
    assert cut(run) == "distill"
    left = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert left == {"stages.json", *files[:4]}


def test_differences_are_printed_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"python": "3.11"}
    old = {
        "commit": "a",
        "environment": environment,
        "parts": {"tasks": {"same": 1, "loss": {"log": "x", "weights": "y"}, "gone": 2}},
    }
    options = {"zoo run": ["--a: 1", "--b: 2", "--c: 3"]}
    parts = {"tasks": {"same": 1, "loss": {"log": "x", "weights": "z"}}, "commands": options}
    new = {"commit": "b", "environment": environment, "parts": parts}
    assert compare(old, new) == 2
    assert capsys.readouterr().out.splitlines() == [
        "commands: only one record has this part",
        "tasks: gone: 2 -> null",
        'tasks: loss / weights: "y" -> "z"',
        "a and b: 3 results, 2 of them differ",
    ]
    fewer = {**new, "parts": {"commands": {"zoo run": ["--a: 1", "--b: 4", "--c: 3"]}}}
    assert compare(new, fewer, ["commands"]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [
        "commands: zoo run: without --b: 2",
        "commands: zoo run: with --b: 4",
    ]


def test_missing_cases_are_named() -> None:
    require_cases("the loss", ["a"], ["a", "b"])
    with pytest.raises(SystemExit, match="no case for the loss a, c; add one"):
        require_cases("the loss", ["c", "b", "a"], ["b"])


@pytest.mark.long
def test_a_fork_runs_a_command_as_a_process_does(tmp_path: Path) -> None:
    with Environment(sys.executable, tmp_path / "home") as env:
        for words in (("families", "--json"), ("info", "nothing"), ("convert",)):
            forked = env.run(*words)
            command = [sys.executable, "-m", "zoo", *words]
            process = subprocess.run(
                command, capture_output=True, text=True, env=env.variables, check=False, cwd="/"
            )
            assert forked.returncode == process.returncode
            assert (forked.stdout, forked.stderr) == (process.stdout, process.stderr)
