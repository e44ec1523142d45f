"""A pretrained model next to one from scratch: only initial weights differ, and it resumes."""

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from scipy import stats

import zoo
from tests import warm
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import labelled, settings
from tests.training.runs import cut, records
from zoo.errors import UsageError
from zoo.finetuning.from_scratch import (
    FROM_SCRATCH,
    PRETRAINED,
    describe_comparison,
    resume_comparison,
    resume_same_comparison,
    train_comparison,
)
from zoo.finetuning.runs import FineTuneRun
from zoo.training.compare import find_runs, group_runs
from zoo.training.distributed.context import DistContext
from zoo.training.state.progress import checkpoint_path

SHORT = {"max_steps": 4, "eval_steps": 2, "save_total_limit": 9}
WEIGHTS = "model.safetensors"


def comparison_of(tree: dict[str, Any], path: Path) -> FineTuneRun:
    return FineTuneRun(tree, DistContext.initialize("cpu"), path)


def weights_of_step(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(checkpoint_path(run, step) / "weights.safetensors")


def test_only_the_initial_weights_differ(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    tree = settings(model, labelled(tmp_path / "t.tsv"), **SHORT)
    done = train_comparison(comparison_of(tree, tmp_path / "both"), None)
    one, other = (done.runs[name][0] for name in (PRETRAINED, FROM_SCRATCH))
    (first,), (second,) = (group_runs([run]) for run in (one, other))
    differences = {
        name
        for name, value in first.histories[0].config.items()
        if second.histories[0].config[name] != value
    }
    assert differences == {"random_weights"}
    # Each step reads the same rows: the numbers of tokens are equal.
    tokens = [[record["tokens"] for record in records(run, "train")] for run in (one, other)]
    assert tokens[0] == tokens[1]
    source = load_file(model / WEIGHTS)
    initial = [weights_of_step(run, 0) for run in (one, other)]
    name = "embeddings.tokens.weight"
    assert torch.equal(initial[0][name], source[name])
    # New weights have the deviation of the configuration, as in pretraining.
    deviation = json.loads((model / "config.json").read_text())["config"]["initializer_range"]
    drawn = initial[1][name]
    assert drawn.shape == source[name].shape
    assert abs(drawn.std().item() / deviation - 1) < 0.2
    manifest = json.loads((other / "run.json").read_text())
    assert set(manifest["init_from"]["new_parameters"]) == set(initial[1])
    assert "models" not in manifest["init_from"]
    summary = json.loads((done.path / "summary.json").read_text())
    best = [min(record["loss"] for record in records(run, "validation")) for run in (one, other)]
    loss = summary["metrics"]["loss"]
    selected = summary["selected_by"]
    assert selected == "accuracy"
    assert loss[PRETRAINED][0] >= best[0]
    assert loss["difference"] == {"mean": loss[PRETRAINED][0] - loss[FROM_SCRATCH][0]}
    page = (done.path / "report.html").read_text()
    assert page.count("data:image/svg+xml") == 2 + len(summary["metrics"]) - 2
    assert "http" not in page.replace("http://www.w3.org", "")


def test_an_interrupted_comparison_goes_on(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained(hidden_dropout_prob=0.1)
    tree = settings(model, labelled(tmp_path / "t.tsv"), **SHORT)
    unbroken = train_comparison(comparison_of(tree, tmp_path / "unbroken"), None)
    broken = tmp_path / "broken"
    shutil.copytree(unbroken.path, broken)
    cut(broken / FROM_SCRATCH, 2)
    for name in ("summary.json", "report.html"):
        (broken / name).unlink()
    resumed = resume_comparison(comparison_of({}, broken), broken)
    assert resumed.runs[FROM_SCRATCH] == [broken / FROM_SCRATCH]
    for name in (PRETRAINED, FROM_SCRATCH):
        files = [path / name / "model" / WEIGHTS for path in (unbroken.path, broken)]
        assert files[0].read_bytes() == files[1].read_bytes()
    summaries = [(path / "summary.json").read_bytes() for path in (unbroken.path, broken)]
    assert summaries[0] == summaries[1]
    # A run that has not begun is trained, and the same settings resume.
    shutil.rmtree(broken / FROM_SCRATCH)
    resume_same_comparison(comparison_of(tree, broken), broken, None)
    assert (broken / FROM_SCRATCH / "model" / WEIGHTS).read_bytes() == files[0].read_bytes()
    other = {**tree, "max_steps": 5}
    with pytest.raises(UsageError, match="began with other settings: max_steps: 4 and 5"):
        resume_same_comparison(comparison_of(other, broken), broken, None)
    with pytest.raises(UsageError, match="has 1 run of each model, not runs of 2 seeds"):
        resume_same_comparison(comparison_of(tree, broken), broken, 2)


def test_frozen_layers_are_those_of_the_pretrained_model(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    model, _ = pretrained()
    tree = settings(model, labelled(tmp_path / "t.tsv"), freeze_layers=1, **SHORT)
    plan = describe_comparison(comparison_of(tree, tmp_path / "both"))
    assert plan["from scratch"] == "the same with random weights, without freeze_layers"
    assert not (tmp_path / "both").exists()


def refused(tree: dict[str, Any], path: Path, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train_comparison(comparison_of(tree, path), None)
    assert not path.exists()


def test_what_has_no_weights_from_scratch_is_refused(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv")
    path = tmp_path / "both"
    refused(settings("bert", table), path, "a new model next to a pretrained one, and none is")
    adapter = settings(model, table, adapter={"method": "lora"})
    refused(adapter, path, "an adapter changes a pretrained model, and --from-scratch trains all")
    run = comparison_of(settings(model, table, random_weights=True, freeze_layers=1), path)
    with pytest.raises(UsageError, match=r"frozen layers keep their weights, .* leave --freeze"):
        run.start()
    run = comparison_of(settings("bert", table, random_weights=True), path)
    with pytest.raises(UsageError, match="random_weights takes the configuration of a checkpoint"):
        run.start()


def test_commands_that_exclude_each_other(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv")
    run = tmp_path / "run"
    FineTuneRun(settings(model, table, **SHORT), DistContext.initialize("cpu"), run).start()
    with pytest.raises(UsageError, match="run has no runs from scratch; leave --from-scratch out"):
        zoo.finetune(resume=run, from_scratch=True)
    with pytest.raises(UsageError, match="--from-scratch begins both models, not --continue-from"):
        zoo.finetune(continue_from=run, from_scratch=True)
    options: dict[str, Any] = {"task": "text-classification", "train": table, "text": "text"}
    with pytest.raises(UsageError, match="run has no runs from scratch; leave --from-scratch out"):
        zoo.finetune(model, **options, output=run, auto_resume=True, from_scratch=True)


@pytest.mark.long
def test_seeds_are_paired(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    table, held = labelled(tmp_path / "t.tsv"), labelled(tmp_path / "e.tsv", seed=1)
    both = tmp_path / "both"
    sets = [f"--set={name}={value}" for name, value in (("eval_steps", 2), ("batch_size", 8))]
    command = (
        *("finetune", model, "--task", "text-classification", "--train", table, "--eval", held),
        *("--seeds", "3", "--max-steps", "4", "--device", "cpu", "-o", both, *sets),
        *("--from-scratch", "--auto-resume"),
    )
    for _ in range(2):  # The second one finds all finished.
        done = warm.zoo(*command)
        assert done.returncode == 0, done.stderr
    summary = json.loads((both / "summary.json").read_text())
    losses = summary["metrics"]["loss"]
    expected = stats.ttest_rel(losses[PRETRAINED], losses[FROM_SCRATCH])
    low, high = expected.confidence_interval(0.95)
    difference = losses["difference"]
    gain = statistics.fmean(losses[PRETRAINED]) - statistics.fmean(losses[FROM_SCRATCH])
    assert difference == pytest.approx(
        {"mean": gain, "low": low, "high": high, "p": expected.pvalue}, rel=1e-9
    )
    groups = group_runs(find_runs([both]))
    assert [group.name for group in groups] == [FROM_SCRATCH, PRETRAINED]
    assert "random_weights: True and False" in groups[1].changes
    assert (both / PRETRAINED / "model" / WEIGHTS).is_file()
    described = warm.zoo("info", both, "--json")
    assert json.loads(described.stdout)["finished"] is True
