"""Ordinal regression from a table to a graph: training, evaluation, results, and the gate."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import cohen_kappa_score

import zoo
from tests import warm
from tests.finetuning.conftest import Pretrained
from zoo.errors import UsageError
from zoo.metrics.ordinal import ordinal_metrics
from zoo.objectives.base import Outputs
from zoo.tasks.ordinal_regression.train import RankedProbability

STARS = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}  # of letters that the tiny vocabulary has


def test_kappa_equals_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        actual, predicted = rng.integers(0, 5, 60), rng.integers(1, 4, 60)
        metrics = ordinal_metrics(predicted, actual)
        expected = cohen_kappa_score(actual, predicted, weights="quadratic")
        assert metrics["quadratic_kappa"] == pytest.approx(expected, abs=1e-12)
        assert metrics["mean_absolute_error"] == np.abs(predicted - actual).mean()
    same = np.zeros(3, np.int64)
    assert ordinal_metrics(same, same)["quadratic_kappa"] == 0


def test_the_loss_is_the_ranked_probability_score() -> None:
    """By hand: probabilities 0.2, 0.35, 0.45 and the label 0 give 0.8² + 0.45² + 0."""
    context: Any = SimpleNamespace(name="ordinal-regression")
    logits = torch.tensor([[0.2, 0.35, 0.45], [0.6, 0.3, 0.1]], dtype=torch.float64).log()
    labels = torch.tensor([0, 2])
    output = RankedProbability().loss(context, Outputs({context.name: logits}), {"labels": labels})
    expected = (0.8**2 + 0.45**2) + (0.6**2 + 0.9**2)
    assert float(output.sums[context.name]) == pytest.approx(expected, abs=1e-12)
    assert output.predictions["prediction"].tolist() == [1, 0]  # medians


def table(path: Path, words: dict[str, Any]) -> Path:
    rows = [
        f"{w} {'fghij'[k % 5]} {'fghij'[k % 3]} {'ab' * (k // 15)}".strip() + f"\t{label}"
        for k in range(30)
        for w, label in words.items()
    ]
    path.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return path


@pytest.fixture
def run(pretrained: Pretrained, tmp_path: Path) -> tuple[Path, Path]:
    """A run that learned the stars of words, and its table."""
    _, hub = pretrained()
    data = table(tmp_path / "stars.tsv", STARS)
    arguments = ["finetune", hub, "--task", "ordinal-regression", "--train", data]
    settings = ("optimizer.learning_rate=2e-3", "batch_size=25")
    arguments += [part for s in settings for part in ("--set", s)]
    done = warm.zoo(*map(str, arguments), "--max-steps", "60", "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    return tmp_path / "run", data


@pytest.mark.long
def test_a_model_learns_and_every_command_takes_it(run: tuple[Path, Path], tmp_path: Path) -> None:
    folder, data = run[0] / "model", str(run[1])
    done = warm.zoo("eval", str(folder), "--task", "ordinal-regression", "--eval", data, "--json")
    metrics = json.loads(done.stdout)["metrics"]
    assert metrics["quadratic_kappa"] > 0.5, metrics
    result = json.loads(warm.zoo("run", "ordinal-regression", str(folder), "e f").stdout)
    assert list(result) == ["text", "label", "rank", "scores"]
    assert list(result["scores"]) == ["1", "2", "3", "4", "5"]
    model = zoo.load(folder, backend="cpu")
    (same,) = model.run("ordinal-regression", ["e f"])
    assert same["label"] == result["label"]
    assert same["scores"] == pytest.approx(result["scores"], abs=1e-6)
    assert model.classify(["e f"])[0]["scores"] == pytest.approx(result["scores"])
    export = ["export", str(folder), "--onnx", "--int8", "--eval", data, "--max-drop", "1"]
    done = warm.zoo(*export, "-o", str(tmp_path / "onnx"), "--json")
    assert done.returncode == 0, done.stderr
    assert "quadratic_kappa" in done.stdout
    assert done.stderr.count("samples of each label") == 1  # of three graphs that are evaluated


@pytest.mark.long
def test_words_need_an_order(pretrained: Pretrained, tmp_path: Path) -> None:
    _, hub = pretrained()
    data = table(tmp_path / "t.tsv", {word: word for word in STARS})
    arguments = ["finetune", str(hub), "--task", "ordinal-regression", "--train", str(data)]
    done = warm.zoo(*arguments, "-o", str(tmp_path / "run"))
    assert done.returncode == UsageError.exit_code
    assert "order of the labels is unknown" in done.stderr
    assert "data.labels=[a,b,c,d,e]" in done.stderr
