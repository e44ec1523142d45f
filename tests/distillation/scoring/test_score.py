"""ScoresRecord against numbers computed by hand from the logits of both models."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import zoo
from tests import warm
from tests.distillation.making import distill, make_setup, narrow, pretrained, settings
from tests.finetuning.making import SETTINGS, finetune, labelled
from tests.finetuning.making import settings as task_settings
from tests.inference.making import write_manifest
from tests.training.logging.making import Page
from zoo.checkpoint import WEIGHTS, load_checkpoint
from zoo.checkpoint.digests import check_digests
from zoo.distillation.scoring.score import require_retention, score_run
from zoo.errors import VerificationError
from zoo.inference.load_model import load_model
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext
from zoo.training.logging.scores import SCORES, ScoresRecord, read_scores, retained


@pytest.fixture(scope="module")
def teacher() -> Path:
    return pretrained("bert")


@pytest.fixture(scope="module")
def run(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scored") / "run"
    return distill(path, settings(teacher, "distilbert", max_steps=4))


@pytest.fixture
def scores(run: Path) -> ScoresRecord:
    return score_run(run, device="cpu", backends=["cpu"])


def logits_and_labels(run: Path, teacher: Path) -> tuple[Any, Any, Any]:
    """Return the logits of both models at the masked tokens, and the tokens there, in float64."""
    setup = make_setup(settings(teacher, "distilbert", max_steps=4))
    models = [load_model(load_checkpoint(path)) for path in (run / "model", teacher)]
    parts: list[list[Any]] = [[], [], []]
    for batch in setup.eval_batches(DistContext(0, 1, torch.device("cpu"))):
        ids, documents = batch.tensors["input_ids"], batch.tensors["document_ids"]
        positions = batch.tensors["label_positions"]
        parts[2].append(batch.tensors["labels"].numpy())
        for model, values in zip(models, parts, strict=False):
            with torch.no_grad():
                hidden = model.encode(ids, document_ids=documents)  # type: ignore[operator]
                predicted = model.scores(hidden.flatten(0, 1)[positions])  # type: ignore[operator]
            values.append(predicted.double().numpy())
    student, other, labels = (np.concatenate(values) for values in parts)
    return student, other, labels


def test_scores_of_text_are_those_of_both_models_logits(
    run: Path, teacher: Path, scores: ScoresRecord
) -> None:
    from scipy.special import log_softmax

    student, other, labels = logits_and_labels(run, teacher)
    rows = np.arange(len(labels))
    p, q = log_softmax(other, axis=-1), log_softmax(student, axis=-1)
    (first,) = scores.teachers
    for score, values in ((first, p), (scores.student, q)):
        loss = -values[rows, labels].mean()
        expected = {
            "loss": loss,
            "perplexity": np.exp(loss),
            "accuracy": (values.argmax(-1) == labels).mean(),
        }
        assert score.metrics == pytest.approx(expected, rel=1e-5)
    assert scores.student.agreement == pytest.approx((p.argmax(-1) == q.argmax(-1)).mean())
    divergence = (np.exp(p) * (p - q)).sum(-1).mean()
    assert scores.student.kl == pytest.approx(divergence, rel=1e-4)
    ratio = first.metrics["loss"] / scores.student.metrics["loss"]
    assert scores.metric == "loss" and scores.retention == pytest.approx(ratio)
    assert first.agreement is None


def test_sizes_and_speed(run: Path, teacher: Path, scores: ScoresRecord) -> None:
    for score, path in ((scores.teachers[0], teacher), (scores.student, run / "model")):
        assert score.bytes == (path / "model.safetensors").stat().st_size
        assert 0 < 4 * score.parameters < score.bytes
        (speed,) = score.speed
        assert speed.backend == "cpu" and speed.dtype == "float32"
        assert 0 < speed.latency < 60 and speed.tokens_per_second > 1


def test_the_manifest_has_the_scores_and_is_intact(run: Path, scores: ScoresRecord) -> None:
    check_digests(run / "model")
    training = load_checkpoint(run / "model").manifest.training
    assert training is not None
    assert training["scores"]["retention"] == scores.retention
    page = Page(run / "report.html")
    assert "Student and teacher" in page.text
    assert "Loss against latency" in page.text


def test_scores_are_measured_once(run: Path, scores: ScoresRecord) -> None:
    again = score_run(run, device="cpu", backends=["cpu"])
    assert again == scores == read_scores(run)  # also the measured times


@pytest.mark.long
def test_a_model_that_changed_is_scored_again(run: Path, scores: ScoresRecord) -> None:
    file = run / "scores.json"
    changed = json.loads(file.read_text())
    changed["student"]["files"] = {"model.safetensors": "0" * 64}
    changed["retention"] = 9.0
    file.write_text(json.dumps(changed))
    assert score_run(run, device="cpu", backends=["cpu"]).retention == scores.retention


@pytest.mark.long
def test_metrics_of_labelled_data_are_those_of_the_evaluation(tmp_path: Path) -> None:
    """The trainer's last evaluation and `zoo eval` measured them before."""
    train, held = labelled(tmp_path / "t.tsv"), labelled(tmp_path / "e.tsv", 30, seed=1)
    data = {"train": [str(train)], "eval": [str(held)]}
    teacher = finetune(tmp_path / "teacher", task_settings(pretrained("bert"), train, data=data))
    tree = {
        "distillation": {"teachers": [str(teacher / "model")], "recipe": "logits"},
        "student": narrow("distilbert"),
        "task": "text-classification",
        "data": data,
    }
    run = distill(tmp_path / "run", deep_merge(tree, SETTINGS))
    scores = score_run(run, device="cpu", backends=["cpu"])
    for score, model in ((scores.student, run), (scores.teachers[0], teacher)):
        training = load_checkpoint(model / "model").manifest.training
        assert training is not None
        expected = training["metrics"]
        assert {name: score.metrics[name] for name in expected} == pytest.approx(expected)
    name = scores.metric
    assert name == "accuracy"
    ratio = scores.student.metrics[name] / scores.teachers[0].metrics[name]
    assert scores.retention == pytest.approx(ratio)
    assert 0 <= (scores.student.agreement or 0) <= 1


def test_a_student_without_a_trained_head_has_no_quality(teacher: Path, tmp_path: Path) -> None:
    tree = settings(teacher, "distilbert", max_steps=2, distillation={"recipe": "minilm"})
    scores = score_run(distill(tmp_path / "run", tree), device="cpu", backends=["cpu"])
    assert scores.retention is None and not scores.student.metrics
    assert scores.teachers[0].metrics["loss"] > 0
    with pytest.raises(VerificationError, match="it is unknown whether the student keeps"):
        require_retention(scores, 0.1)


def test_a_retention_that_is_no_number_is_a_miss(scores: ScoresRecord) -> None:
    require_retention(scores, 0.01)
    with pytest.raises(VerificationError, match="less than nan%"):
        require_retention(scores, float("nan"))


@pytest.mark.parametrize(
    ("name", "teacher", "student", "expected"),
    [
        ("accuracy", 0.8, 0.6, 0.75),
        ("loss", 3.0, 4.0, 0.75),
        ("perplexity", 10.0, 8.0, 1.25),
        ("pearson", -0.1, 0.5, None),
        ("accuracy", 0.0, 0.5, None),
        ("loss", None, 4.0, None),
        ("mean_squared_error", 0.0, 0.5, None),
        ("mean_squared_error", 0.0, 0.0, None),
    ],
)
def test_retention(
    name: str, teacher: float | None, student: float, expected: float | None
) -> None:
    value = retained(name, teacher, student)
    assert value == (None if expected is None else pytest.approx(expected))


def test_the_command_scores_and_requires(run: Path) -> None:
    missed = warm.zoo("distill", "--resume", run, "--min-retention", "1.5", "--device", "cpu")
    assert missed.returncode == 3
    assert "latency, ms, cpu" in missed.stdout
    (line,) = [line for line in missed.stderr.splitlines() if line.startswith("error")]
    assert "of its teacher's quality by loss, less than 150.0%" in line
    done = warm.zoo("distill", "--resume", run, "--min-retention", "0.01", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["scores"]["metric"] == "loss"


@pytest.mark.long
def test_the_function_of_python_is_the_command(teacher: Path, run: Path, tmp_path: Path) -> None:
    tree = settings(teacher, "distilbert", max_steps=4)
    data = tree["data"].pop("paths")
    result = zoo.distill(
        teacher,
        "distilbert",
        train=data,
        settings={k: v for k, v in tree.items() if k not in ("distillation", "student")},
        output=tmp_path / "run",
        device="cpu",
    )
    name = "model.safetensors"
    assert (result.model / name).read_bytes() == (run / "model" / name).read_bytes()
    assert result.run == tmp_path / "run"
    assert result.scores is not None and result.scores.metric == "loss"


@pytest.mark.long
def test_several_seeds_are_summarized(teacher: Path, tmp_path: Path) -> None:
    tree = settings(teacher, "distilbert", max_steps=2)
    file, output = tmp_path / "run.yaml", tmp_path / "runs"
    file.write_text(json.dumps(tree))
    here = ("--device", "cpu", "--score-backend", "cpu")
    done = warm.zoo("distill", file, "--seeds", "2", "-o", output, "--json", *here)
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)["scores"]
    assert list(scores) == ["seed-0", "seed-1"]
    values = [score["student"]["metrics"]["loss"] for score in scores.values()]
    summary = json.loads((output / "summary.json").read_text())
    expected = {"median": sum(values) / 2, "lowest": min(values), "highest": max(values)}
    assert summary["scores"]["loss"] == pytest.approx(expected)
    training = load_checkpoint(output / "model").manifest.training
    assert training is not None and "scores" in training


def test_a_student_that_returns_nan_has_no_score(run: Path, tmp_path: Path) -> None:
    """NaN of both models would agree in every prediction: their argmax is the same."""
    broken = shutil.copytree(run, tmp_path / "run")
    weights = load_file(broken / "model" / WEIGHTS)
    name = next(name for name in weights if name.endswith("norm.weight"))
    save_file({**weights, name: weights[name] * torch.nan}, broken / "model" / WEIGHTS)
    write_manifest(broken / "model")
    (broken / SCORES).unlink(missing_ok=True)
    with pytest.raises(VerificationError, match="NaN"):
        score_run(broken, device="cpu", backends=["cpu"])
    assert not (broken / SCORES).exists()
