"""``zoo compare --test``: the models of two runs, on their evaluation data."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from scipy.stats import binomtest

import zoo
from tests import warm
from tests.finetuning.making import finetune, labelled, settings
from zoo.api.comparing_runs import compare_models
from zoo.errors import SourceError, UsageError


def train(path: Path, table: Path, evaluation: Path, seed: int) -> Path:
    """Train a run of two steps."""
    tree = settings("bert", table, max_steps=2, eval_steps=2, save_steps=2, seed=seed)
    tree["data"]["eval"] = [str(evaluation)]
    return finetune(path, tree)


def outcomes(run: Path, data: Path) -> list[bool]:
    """Return whether the model is right on each sample."""
    rows = []
    zoo.evaluate(
        run / "model",
        task="text-classification",
        eval=data,
        record=False,
        on_prediction=lambda row: rows.append(row["correct"]),
    )
    return rows


def test_models_of_runs_are_compared(tmp_path: Path) -> None:
    table, data = labelled(tmp_path / "train.jsonl", 40), labelled(tmp_path / "eval.jsonl", 24, 1)
    for name, seed in (("a", 0), ("b", 5)):
        train(tmp_path / name / "reviews", table, data, seed)
    first, second = (outcomes(tmp_path / name / "reviews", data) for name in "ab")
    for paths, task in (("a", "b"), "reviews"), (("a/reviews", "b/reviews"), ""):
        done = warm.zoo("compare", *paths, "--test", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        comparisons = json.loads(done.stdout)["comparisons"]
        assert {row["name"] for row in comparisons} == {task}
        accuracy = comparisons[0]
        assert accuracy["first"] == pytest.approx(sum(first) / 24)
        assert accuracy["second"] == pytest.approx(sum(second) / 24)
        # McNemar's exact test: a binomial test of the samples on which one model is right.
        only_first = sum(a and not b for a, b in zip(first, second, strict=True))
        only_second = sum(b and not a for a, b in zip(first, second, strict=True))
        expected = 1.0
        if only_first + only_second:
            expected = binomtest(only_first, only_first + only_second).pvalue
        assert accuracy["test"] == "mcnemar" and accuracy["p"] == pytest.approx(expected)
        assert [row for row in comparisons if row["adjusted"] < row["p"]] == []

    first_run, second_run = tmp_path / "a" / "reviews", tmp_path / "b" / "reviews"
    with pytest.raises(UsageError, match="is a run, and the other has runs of tasks"):
        compare_models(first_run, tmp_path / "b")
    (tmp_path / "b" / "reviews").rename(tmp_path / "b" / "films")
    with pytest.raises(UsageError, match="films is in one of"):
        compare_models(tmp_path / "a", tmp_path / "b")
    second_run = tmp_path / "b" / "films"
    with pytest.raises(UsageError, match="films is not a run, and has none"):
        shutil.copytree(second_run / "model", tmp_path / "c" / "films")
        compare_models(first_run, tmp_path / "c" / "films")
    shutil.rmtree(second_run / "model")
    with pytest.raises(SourceError, match="films has no model, its training has not ended"):
        compare_models(first_run, second_run)
    for existing in (first_run, data):
        done = warm.zoo("compare", existing, tmp_path / "none")
        assert done.returncode == 4 and f"{tmp_path / 'none'} does not exist" in done.stderr
    done = warm.zoo("compare", first_run, second_run, "--metric", "bleu")
    assert done.returncode == 2 and "--metric is for tests: add --test" in done.stderr


def test_rows_that_a_run_skips_are_not_compared(tmp_path: Path) -> None:
    table, data = labelled(tmp_path / "train.jsonl", 40), labelled(tmp_path / "eval.jsonl", 12, 1)
    run = train(tmp_path / "a", table, data, 0)
    expected = compare_models(run, run)
    data.write_text(data.read_text() + '{"text": "a"}\n')
    with pytest.raises(UsageError, match=r"eval.jsonl:13 .*, or leave it out$"):
        compare_models(run, run)
    config = run / "config.yaml"
    values = yaml.safe_load(config.read_text())
    values["data"]["skip_invalid"] = True
    config.write_text(yaml.safe_dump(values))
    assert compare_models(run, run) == expected
