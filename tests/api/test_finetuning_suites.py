"""``zoo finetune --suite``: runs of all tasks, their table, and what is resumed."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

import zoo
from tests import warm
from tests.checkpoints import Make, hub_checkpoint, shrink
from tests.inference.conftest import converted
from tests.suites.glue_folder import make_glue
from tests.suites.superglue_folder import make_superglue
from tests.tasks.seq2seq.making import model as t5
from tests.tasks.seq2seq.making import t5_hub
from tests.training.runs import assert_same, cut, lines, records, wait_until
from zoo.errors import SourceError, UsageError

__all__ = ["hub_checkpoint", "t5", "t5_hub"]
SHORT: dict[str, Any] = {
    "preset": "default",
    "max_steps": 2,
    "settings": {"eval_steps": 2, "save_steps": 1, "batch_size": 4},
    "device": "cpu",
}


@pytest.fixture
def model(hub_checkpoint: Make, tmp_path: Path) -> Path:
    source = hub_checkpoint("BertForMaskedLM", "pretrained", max_position_embeddings=128)
    shrink(source / "model.safetensors", 0.2)
    return converted(source, tmp_path / "model").path


def modified(folder: Path) -> dict[str, int]:
    """Return the time of the last change of each model below a folder."""
    models = folder.rglob("model.safetensors")
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in models}


def test_tasks_are_trained_once_over_seeds(model: Path, tmp_path: Path) -> None:
    data = make_superglue(tmp_path / "SuperGLUE", 8)
    runs = tmp_path / "runs"
    settings = {**SHORT["settings"], "save_total_limit": 2}
    call: dict[str, Any] = {"output": runs, "tasks": "cb,copa", "seeds": 2, **SHORT}
    call |= {"settings": settings, "keep_optimizer": True}
    training = zoo.finetune_suite(model, "superglue", data, **call)
    assert list(training.runs) == list(training.tasks) == ["cb", "copa"]
    expected: dict[str, list[float]] = {"cb": [], "copa": []}
    for seed in (0, 1):
        # The models of a seed, measured one by one.
        chosen = tmp_path / f"chosen-{seed}"
        for task in expected:
            shutil.copytree(runs / task / f"seed-{seed}" / "model", chosen / task)
        result = zoo.evaluate(chosen, suite="superglue", eval=data, tasks="cb,copa", record=False)
        for task, scores in expected.items():
            scores.append(result.details["tasks"][task]["score"])
    for task, scores in expected.items():
        numbers = training.tasks[task]["score"]
        assert numbers["values"] == pytest.approx(scores)
        assert numbers["mean"] == pytest.approx(mean(scores))
        assert numbers["std"] == pytest.approx(stdev(scores))
    averages = [mean(pair) for pair in zip(*expected.values(), strict=True)]
    assert training.average["values"] == pytest.approx(averages)
    assert training.missing == ["boolq", "multirc", "record", "rte", "wic", "wsc"]
    assert json.loads((runs / "suite.json").read_text()) == training.to_dict()

    # Of the last task, one run was killed after its first step, and the other one has not begun.
    before = modified(runs)
    cut(runs / "copa" / "seed-0", 1)
    shutil.rmtree(runs / "copa" / "seed-1")
    with pytest.raises(UsageError, match="exists; go on with --auto-resume"):
        zoo.finetune_suite(model, "superglue", data, **call)
    again = zoo.finetune_suite(model, "superglue", data, auto_resume=True, **call)
    after = modified(runs)
    changed = {Path(name).parts[:2] for name in before if before[name] != after[name]}
    assert {("copa", "seed-0"), ("copa", "seed-1")} <= changed
    assert not {("cb", "seed-0"), ("cb", "seed-1")} & changed
    steps = [record["step"] for record in records(runs / "copa" / "seed-0")]
    assert steps == sorted(set(steps)), "the first step is repeated"
    assert again.tasks == training.tasks


def test_the_table_of_the_command_names_missing_tasks(model: Path, tmp_path: Path) -> None:
    data = make_glue(tmp_path / "GLUE", 8)
    shutil.rmtree(data / "RTE")
    command = ("finetune", str(model), "--suite", "glue", str(data), "--tasks", "cola,rte")
    short = ("--max-steps", "1", "--preset", "default", "--batch-size", "4", "--device", "cpu")
    done = warm.zoo(*command, *short, "-o", str(tmp_path / "runs"))
    assert done.returncode == 4, done.stderr
    assert "rte is not trained: " in done.stderr
    assert "the files of rte are missing; add them" in done.stderr.splitlines()[-1]
    lines = done.stdout.splitlines()
    assert lines[1].split()[:2] == ["cola", "matthews_correlation"]
    assert lines[2].startswith("average of 1 of 9")


def test_a_task_that_fails_loses_no_other(model: Path, tmp_path: Path) -> None:
    data = make_superglue(tmp_path / "SuperGLUE", 4)
    rows = [json.loads(line) for line in (data / "BoolQ/train.jsonl").read_text().splitlines()]
    rows[2]["label"] = "maybe"
    (data / "BoolQ/train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    runs = tmp_path / "runs"
    (runs / "copa").mkdir(parents=True)
    (runs / "copa" / "notes.txt").write_text("not a run")
    command = ["finetune", model, "--suite", "superglue", data, "--tasks", "boolq,cb,copa", "-o"]
    command += [runs, "--auto-resume", "--max-steps", "1", "--preset", "default", "--device", "cpu"]
    done = warm.zoo(*command)
    assert done.returncode == 2, done.stderr
    table = done.stdout.splitlines()
    assert table[1].startswith("cb ") and table[2].startswith("average of 1 of 8")
    *_, message, boolq, copa = done.stderr.splitlines()
    assert message.startswith("error: boolq, copa failed; correct what these lines name")
    assert "BoolQ/train.jsonl:3: the label is 'maybe'" in boolq
    assert "copa is not a run, it has no run.json; move it away" in copa
    recorded = json.loads((runs / "suite.json").read_text())
    assert list(recorded["failures"]) == ["boolq", "copa"] and "boolq" in recorded["missing"]

    # The run is finished, and its model is of another task.
    shutil.copytree(runs / "cb", runs / "wic")
    (runs / "boolq").mkdir()
    shutil.copy(runs / "cb" / "run.json", runs / "boolq")
    command = ["eval", runs, "--suite", "superglue", data, "--tasks", "boolq,cb,wic", "--no-record"]
    done = warm.zoo(*command)
    assert done.returncode == 4, done.stderr
    assert done.stdout.splitlines()[2].startswith("average of 1 of 3")
    assert f"boolq: {runs / 'boolq'} has no model, its training has not ended" in done.stderr
    assert (
        "wic/model has the labels entailment, contradiction, and the task"
        in done.stderr.splitlines()[-1]
    )
    done = warm.zoo(*command, "--json")
    values = json.loads(done.stdout)
    assert done.returncode == 4 and list(values["failures"]) == ["boolq", "wic"]


def test_an_error_of_all_tasks_ends_the_suite(model: Path, tmp_path: Path) -> None:
    data = make_superglue(tmp_path / "SuperGLUE", 4)
    options: dict[str, Any] = {"output": tmp_path / "runs", "settings": {"learning_rat": 1}}
    with pytest.raises(UsageError, match="there is no setting learning_rat"):
        zoo.finetune_suite(model, "superglue", data, **options)
    assert not (tmp_path / "runs").exists()
    for title in ("BoolQ", "CB"):
        (data / title / "train.jsonl").write_text("")
    with pytest.raises(UsageError, match="no task can be trained") as caught:
        zoo.finetune_suite(model, "superglue", data, tasks="boolq,cb", output=tmp_path / "runs")
    assert len(caught.value.details) == 2


def test_wrong_calls_are_refused(model: Path, tmp_path: Path) -> None:
    data = make_glue(tmp_path / "GLUE", 3)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"suite": "glu"}, "no suite is called 'glu'; did you mean glue"),
        ({"tasks": "kola"}, "GLUE has no task 'kola'"),
        ({"tasks": "ax"}, "no model is trained for ax"),
        ({"train": "a.tsv"}, "--suite decides --train; leave --train out"),
        ({"mixture": True}, "--mixture trains a text-to-text model, and .* is not one"),
        ({"resume": "runs/a"}, "--suite trains several runs, and --resume is for one"),
        ({"skip_invalid": True}, "--suite reads files as published"),
        ({"data": tmp_path / "none", "tasks": "cola"}, "CoLA.train.tsv is not there"),
    ]
    for changes, message in cases:
        call: dict[str, Any] = {"suite": "glue", "data": data, "output": tmp_path / "r", **changes}
        with pytest.raises((UsageError, SourceError), match=message):
            zoo.finetune_suite(model, **call)
        assert not (tmp_path / "r").exists()
    data = make_superglue(tmp_path / "SuperGLUE", 3)
    lines = (data / "BoolQ" / "train.jsonl").read_text().splitlines()
    unlabelled = {**json.loads(lines[0]), "label": None}
    (data / "BoolQ" / "train.jsonl").write_text(json.dumps(unlabelled) + "\n")
    (data / "RTE" / "train.jsonl").write_text("")
    for task, changes, message in (
        ("boolq", {}, "train.jsonl:1 has no label"),
        ("rte", {}, "train.jsonl has no samples"),
        ("cb", {"settings": {"learning_rat": 1}}, "there is no setting learning_rat"),
    ):
        call = {"suite": "superglue", "data": data, "output": tmp_path / "r", **changes}
        with pytest.raises(UsageError, match=message):
            zoo.finetune_suite(model, tasks=task, **call)
        assert not (tmp_path / "r").exists(), "tables without a run are removed"
    done = warm.zoo("finetune", str(model), str(data), "--task", "glue/cola")
    assert done.returncode == 2 and "is a folder of --suite" in done.stderr
    done = warm.zoo("finetune", str(model), "--task", "glue/cola", "--train", data, "--mixture")
    assert done.returncode == 2 and "--mixture mixes the tasks of a suite" in done.stderr
    done = warm.zoo("finetune", model, data, "--suite", "superglue", "-o", tmp_path)
    assert done.returncode == 2 and "exists; go on with --auto-resume" in done.stderr
    done = warm.zoo("finetune", str(model), str(data), "--suite", "glue")
    assert done.returncode == 2 and "name it with -o" in done.stderr


@pytest.mark.long
def test_a_suite_that_is_killed_ends_as_an_unbroken_one(model: Path, tmp_path: Path) -> None:
    """Kill the process in each of four runs, with SIGKILL, and compare all runs at the end."""
    data = make_superglue(tmp_path / "SuperGLUE", 8)
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "zoo", "finetune", str(model), "--suite", "superglue"]
    command += [str(data), "--tasks", "cb,wsc", "--seeds", "2", "-o", str(runs), "--auto-resume"]
    command += ["--max-steps", "30", "--preset", "default", "--batch-size", "4", "--device", "cpu"]
    command += ["--threads", "1", "--set=save_steps=2", "--set=eval_steps=4"]
    command += ["--set=logging_steps=1", "--set=save_total_limit=2", "--keep-optimizer"]
    subprocess.run(command, check=True, capture_output=True)
    unbroken = tmp_path / "unbroken"
    runs.rename(unbroken)  # Settings have the paths of tables, which are the same now.
    directories = [f"{task}/seed-{seed}" for task in ("cb", "wsc") for seed in (0, 1)]
    for directory in directories:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        wait_until(lambda: lines(runs / directory) >= 5, process)  # noqa: B023
        process.kill()
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors
        assert not (runs / directory / "model").exists()
        assert not (runs / "suite.json").exists()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "means and standard deviations over 2 seeds" in done.stdout
    for directory in directories:
        assert_same(unbroken / directory, runs / directory)
    assert (runs / "suite.json").read_bytes() == (unbroken / "suite.json").read_bytes()


@pytest.mark.long
def test_all_tasks_of_superglue_are_trained(model: Path, tmp_path: Path) -> None:
    data = make_superglue(tmp_path / "SuperGLUE", 8)
    short = {**SHORT, "max_steps": 1}
    training = zoo.finetune_suite(model, "superglue", data, output=tmp_path / "runs", **short)
    assert len(training.runs) == 8 and not training.missing
    assert list(training.tasks)[8:] == ["axb", "axg"]
    averaged = [numbers["score"]["mean"] for numbers in list(training.tasks.values())[:8]]
    assert training.average["mean"] == pytest.approx(mean(averaged))


@pytest.mark.long
def test_text_to_text_models_learn_the_forms(t5: Path, tmp_path: Path) -> None:
    data = make_superglue(tmp_path / "SuperGLUE", 24)
    settings = {
        "eval_steps": 60,
        "save_steps": 60,
        "batch_size": 8,
        "optimizer.learning_rate": 0.01,
        "lr_scheduler.warmup_steps": 0,
    }
    options: dict[str, Any] = {**SHORT, "max_steps": 60, "settings": settings}
    runs = tmp_path / "runs"
    names = "boolq,record,wsc"
    training = zoo.finetune_suite(t5, "superglue", data, output=runs, tasks=names, **options)
    assert list(training.tasks) == ["boolq", "record", "wsc"]
    opened = zoo.load(runs / "boolq" / "model", backend="cpu")
    lines = [json.loads(line) for line in (data / "BoolQ" / "val.jsonl").read_text().splitlines()]
    sources = [f"boolq passage: {row['passage']} question: {row['question']}" for row in lines]
    generated = [result["generated"] for result in opened.seq2seq(sources)]
    assert set(generated) & {"True", "False"}, generated
    correct = [str(row["label"]) == text for row, text in zip(lines, generated, strict=True)]
    assert training.tasks["boolq"]["accuracy"]["values"] == [pytest.approx(mean(correct))]
    # Models are trained on correct noun phrases only.
    rows = (runs / "tables" / "wsc" / "train.jsonl").read_text().splitlines()
    assert {json.loads(row)["label"] for row in rows} == {"i j"}
    # One of the models answers all tasks, whatever it has learned.
    result = zoo.evaluate(runs / "boolq" / "model", suite="superglue", eval=data, limit=2)
    assert len(result.details["tasks"]) == 10


@pytest.mark.long
def test_one_model_learns_a_mixture(t5: Path, tmp_path: Path) -> None:
    data = make_superglue(tmp_path / "SuperGLUE", 24)
    shutil.rmtree(data / "WiC")
    settings = {
        "eval_steps": 30,
        "save_steps": 30,
        "batch_size": 8,
        "optimizer.learning_rate": 0.01,
        "lr_scheduler.warmup_steps": 0,
        "data.mixing_limit": 30,
        "data.temperature": 2,
    }
    options: dict[str, Any] = {**SHORT, "max_steps": 60, "settings": settings, "seeds": 2}
    runs = tmp_path / "runs"
    names = ["boolq", "cb", "multirc", "wic", "axb"]
    training = zoo.finetune_suite(
        t5, "superglue", data, output=runs, tasks=names, mixture=True, **options
    )
    assert training.runs == {"mixture": runs / "mixture"}
    assert list(training.tasks) == ["boolq", "cb", "multirc", "axb"]
    assert list(training.missing_files) == ["wic"]
    run = json.loads((runs / "mixture" / "seed-0" / "run.json").read_text())
    rates = {"boolq": 24**0.5, "cb": 24**0.5, "multirc": 30**0.5}
    for name, rate in rates.items():
        expected = rate / sum(rates.values())
        assert run["data"]["weights"][name] == pytest.approx(expected, abs=1e-4)
    for seed in (0, 1):
        model = runs / "mixture" / f"seed-{seed}" / "model"
        lines = [json.loads(line) for line in (data / "CB/val.jsonl").read_text().splitlines()]
        sources = [f"cb hypothesis: {r['hypothesis']} premise: {r['premise']}" for r in lines]
        generated = [row["generated"] for row in zoo.load(model, backend="cpu").seq2seq(sources)]
        accuracy = mean(text == row["label"] for text, row in zip(generated, lines, strict=True))
        assert training.tasks["cb"]["accuracy"]["values"][seed] == pytest.approx(accuracy)
    assert max(training.tasks["boolq"]["accuracy"]["values"]) > 0, "it generates labels"
    # The directory of the suite, and that of a run, are references of the model.
    for reference in (runs, runs / "mixture" / "seed-0"):
        result = zoo.evaluate(reference, suite="superglue", eval=data, tasks="cb", record=False)
        assert (
            result.details["tasks"]["cb"]["accuracy"]
            in (training.tasks["cb"]["accuracy"]["values"])
        )
    again = zoo.finetune_suite(
        t5, "superglue", data, output=runs, tasks=names, mixture=True, auto_resume=True, **options
    )
    assert again.tasks == training.tasks


@pytest.mark.long
def test_tasks_without_a_text_to_text_form_are_left_out(t5: Path, tmp_path: Path) -> None:
    data = make_glue(tmp_path / "GLUE", 8)
    names = "stsb,wnli"
    options = {**SHORT, "max_steps": 1, "output": tmp_path / "runs", "tasks": names}
    training = zoo.finetune_suite(t5, "glue", data, **options)
    assert list(training.tasks) == ["stsb"] and "wnli" in training.missing
    model = tmp_path / "runs" / "stsb" / "model"
    predictions = tmp_path / "answers"
    result = zoo.evaluate(
        model, suite="glue", eval=data, tasks=names, predictions=predictions, record=False
    )
    assert list(result.details["tasks"]) == ["stsb"]
    lines = (predictions / "STS-B.tsv").read_text().splitlines()
    scores = [float(line.split("\t")[1]) for line in lines[1:]]
    assert len(scores) == 8 and min(scores) >= 0 and max(scores) <= 5
