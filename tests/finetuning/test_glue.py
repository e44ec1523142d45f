"""The tasks of GLUE from a directory of their files, with scores against scikit-learn and SciPy."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

import zoo
from tests import warm
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import SETTINGS, texts
from zoo.data.readers.glue import GLUE, glue_files
from zoo.finetuning.config import finetune_config

ROWS = {"train": 24, "dev": 12, "dev_matched": 10, "dev_mismatched": 14}
HEADERS = {
    "cola": (),
    "stsb": ("index", "genre", "sentence1", "sentence2", "score"),
    "mnli": ("index", "sentence1", "sentence2", "label1", "gold_label"),
}
SHORT = {"max_steps": 2, "eval_steps": 2, "save_steps": 2}
Rows = list[dict[str, str]]


def row(task: str, number: int, first: str, second: str) -> list[str]:
    if task == "cola":
        return ["gj04", str(int(first[0] <= "e")), "*", first]
    if task == "stsb":
        return [str(number), "news", first, second, f"{len(set(first) & set(second)) / 2}"]
    label = ("entailment", "neutral", "contradiction")[len(second) % 3]
    return [str(number), first, second, "neutral", label]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files as the archive has them, with quotes that are no quotes."""
    for task, header in HEADERS.items():
        for stem in ("train", *GLUE[task].dev):
            count = ROWS[stem]
            both = zip(texts(count, 1), texts(count, 2), strict=True)
            lines = [row(task, number, *pair) for number, pair in enumerate(both)]
            path = tmp_path / "GLUE" / GLUE[task].folder / f"{stem}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            lines[0][-1 if task == "cola" else 2] += ' "a'
            path.write_text("".join("\t".join(line) + "\n" for line in (header, *lines) if line))
    return tmp_path / "GLUE"


def read(path: Path) -> Rows:
    """Read a file without the reader of the zoo."""
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    header = [str(k + 1) for k in range(4)] if path.parent.name == "CoLA" else lines.pop(0)
    return [dict(zip(header, line, strict=True)) for line in lines]


def expected_scores(task: str, rows: Rows, model: Path) -> list[float]:
    """Return the metrics of GLUE's site, computed from the labels that the model gives."""
    metrics = pytest.importorskip("sklearn.metrics")
    stats = pytest.importorskip("scipy.stats")
    about = GLUE[task]
    inputs: list[Any] = [
        r[about.text] if about.pair is None else (r[about.text], r[about.pair]) for r in rows
    ]
    results = zoo.load(str(model)).classify(inputs)
    if task == "stsb":
        ours = [result["score"] for result in results], [float(r["score"]) for r in rows]
        return [stats.pearsonr(*ours)[0], stats.spearmanr(*ours)[0]]
    predicted = [result["label"] for result in results]
    actual = [r[about.label] for r in rows]
    score = metrics.matthews_corrcoef if task == "cola" else metrics.accuracy_score
    return [score(actual, predicted)]


@pytest.mark.long
def test_models_of_three_tasks_and_their_table(
    pretrained: Pretrained, data: Path, tmp_path: Path
) -> None:
    model, _ = pretrained()
    runs = tmp_path / "runs"
    settings = [
        f"--set={name}={json.dumps(value)}" for name, value in {**SETTINGS, **SHORT}.items()
    ]
    for task in HEADERS:
        command = ("finetune", str(model), "--task", f"glue/{task}", "--train", str(data))
        done = warm.zoo(*command, "-o", str(runs / task), "--device", "cpu", *settings)
        assert done.returncode == 0, done.stderr
    done = warm.zoo("eval", str(runs), "--suite", "glue", "--eval", str(data), "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    scores = {}
    for task in HEADERS:
        files = glue_files(GLUE[task], data)[1]
        parts = [expected_scores(task, read(file), runs / task / "model") for file in files]
        scores[task] = 100 * mean(mean(metric) for metric in zip(*parts, strict=True))
    assert {task: entry["score"] for task, entry in value["tasks"].items()} == pytest.approx(
        scores, abs=1e-4
    )
    assert value["average"] == pytest.approx(mean(scores.values()), abs=1e-4)
    assert value["missing"] == [name for name in GLUE if name not in HEADERS]


def test_settings_of_a_task(pretrained: Pretrained, data: Path) -> None:
    model, _ = pretrained()
    tree = {"init_from": {"model": str(model)}, "task": "glue/mnli", "data": {"train": [str(data)]}}
    config = finetune_config(tree, {})
    assert config.task == "text-classification"
    assert (config.data.text, config.data.pair, config.data.label) == (
        "sentence1",
        "sentence2",
        "gold_label",
    )
    assert [Path(path).name for path in config.data.eval] == [
        "dev_matched.tsv",
        "dev_mismatched.tsv",
    ]
    assert config.metric_for_best_model == "accuracy"


@pytest.mark.parametrize(("task", "epochs"), [("stsb", 10), ("cola", 3)])
def test_presets_have_settings_of_single_tasks(data: Path, task: str, epochs: float) -> None:
    """Clark et al. 2020, arXiv:2003.10555, table 7: 10 epochs for RTE and STS, 3 for all others."""
    tree = {"family": "electra", "task": f"glue/{task}", "data": {"train": [str(data)]}}
    assert finetune_config(tree, {}).num_train_epochs == epochs


def test_errors_are_one_line(data: Path, tmp_path: Path) -> None:
    train = ("--train", str(data))
    cases = {
        ("finetune", "bert", "--task", "glue/kola", *train): (2, "did you mean glue/cola"),
        ("finetune", "bert", "--task", "glue/rte", *train): (4, "give the directory with RTE"),
        ("finetune", "bert", "--task", "glue/cola", *train, *train): (2, "there are 2"),
        ("eval", str(tmp_path), "--suite", "glue", "--eval", str(data)): (
            2,
            "has no model of a task",
        ),
        ("eval", str(tmp_path), "--suite", "glue", "--eval", str(data), "--revision", "x"): (
            2,
            "--suite glue evaluates directories; leave --revision out",
        ),
        ("eval", str(tmp_path), "--eval", str(data)): (2, "no task is named"),
    }
    for command, (code, message) in cases.items():
        done = warm.zoo(*command)
        assert done.returncode == code, (command, done.stderr)
        assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr
