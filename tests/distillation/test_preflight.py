"""Messages before a run: the expected time, and teachers that know nothing."""

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.distillation.making import distill, make_setup, narrow, pretrained, settings
from tests.finetuning.making import SETTINGS, finetune, labelled
from tests.finetuning.making import settings as task_settings
from tests.training.runs import assert_same
from zoo.checkpoint import MANIFEST, Manifest, encode_manifest
from zoo.distillation import preflight
from zoo.distillation.preflight import Preflight, StepTimes, expected_seconds, label_frequencies
from zoo.distillation.runs import DistillRun
from zoo.io.digests.files import hash_file
from zoo.io.json import read_json_record
from zoo.training.build import build_trainer, prepare_run
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext
from zoo.training.graceful_shutdown import StopSignal
from zoo.training.trainer import Trainer


@pytest.fixture(scope="module")
def teacher() -> Path:
    return pretrained("bert")


def make_trainer(path: Path, tree: dict[str, Any]) -> tuple[Trainer, Any]:
    setup, dist = make_setup(tree), DistContext.initialize("cpu")
    path.mkdir(exist_ok=True)
    return build_trainer(setup, path, dist, StopSignal(), prepare_run(setup, path, dist)), setup


@pytest.fixture
def warnings_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """Return a function of settings that returns the warnings before the run."""

    def warned(tree: dict[str, Any]) -> list[str]:
        logging.getLogger("zoo").propagate = True
        trainer, setup = make_trainer(tmp_path / "distilled", tree)
        with caplog.at_level(logging.WARNING, "zoo"):
            Preflight(setup.base, setup.objective, stage=None, announce=True).on_train_begin(
                trainer
            )
        trainer.train_dataloader.close()
        warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
        return [record.getMessage() for record in warnings]

    return warned


def test_a_measurement_changes_nothing(teacher: Path, tmp_path: Path) -> None:
    dropout = {"student": {"dropout": 0.5}}
    tree = settings(teacher, "distilbert", max_steps=1000, **dropout)
    trainer, setup = make_trainer(tmp_path, tree)
    weights = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    state = torch.get_rng_state()
    seconds = expected_seconds(trainer, setup.objective)
    assert seconds is not None and 1 < seconds < 3600
    assert torch.equal(torch.get_rng_state(), state)
    after = trainer.model.state_dict()
    assert [name for name in after if not torch.equal(weights[name], after[name])] == []
    assert [n for n, p in trainer.model.named_parameters() if p.grad is not None] == []
    trainer.train_dataloader.close()


@pytest.mark.long
def test_a_run_that_is_measured_ends_at_the_same_bytes(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = settings(teacher, "distilbert", max_steps=3)
    first = distill(tmp_path / "first", tree)  # too short for a measurement
    monkeypatch.setattr(preflight, "FEWEST", 1)
    assert_same(first, distill(tmp_path / "second", tree))


@pytest.fixture
def expected_times(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[str]]:
    """Return a function that returns the logged lines on the time of runs, however short."""
    logging.getLogger("zoo").propagate = True
    caplog.set_level(logging.INFO, "zoo")
    monkeypatch.setattr(preflight, "FEWEST", 1)

    def lines() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return [message for message in messages if " take about " in message]

    return lines


@pytest.mark.long
def test_a_run_with_a_cache_is_measured_by_its_first_steps(
    tmp_path: Path, expected_times: Callable[[], list[str]]
) -> None:
    """Those that the teacher runs in, and those that read its outputs."""
    cache = {"recipe": "logits", "cache_teacher": str(tmp_path / "cache")}
    tree = settings(pretrained("gpt"), "gpt", max_steps=12, distillation=cache)
    distill(tmp_path / "cold", tree)
    (line,) = expected_times()
    assert line.startswith("6 steps take about ")
    assert line.endswith("by the first steps; less once the teacher's outputs are in the cache")
    distill(tmp_path / "warm", tree)
    (line,) = expected_times()
    assert line.startswith("6 steps take about ") and line.endswith("on cpu, by the first steps")


def test_steps_that_compile_are_left_out() -> None:
    times = StepTimes([])
    for seconds in (0.2, 0.01, 0.2, 0.01, 0.01, 0.01):
        assert times.median() is None
        times.begin()
        time.sleep(seconds)
        times.end()
    median = times.median()
    assert median is not None and 0.01 <= median < 0.15


def test_the_stage_is_named(tmp_path: Path, expected_times: Callable[[], list[str]]) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("stages: {one: {objective_weight: 1}, two: {objective_weight: 1}}")
    tree = settings(pretrained("bert"), "distilbert", max_steps=4, save_steps=4)
    tree = deep_merge(tree, {"distillation": {"recipe": str(recipe)}})
    DistillRun(tree, DistContext.initialize("cpu"), tmp_path / "run").start()
    assert [line.partition(" take about ")[0] for line in expected_times()] == [
        "4 steps of the stage one",
        "4 steps of the stage two",
    ]


def test_frequencies_are_those_of_the_training_text(teacher: Path) -> None:
    setup = make_setup(settings(teacher, "distilbert"))
    base: Any = setup.base
    counts = Counter(int(token) for shard in base.corpus.split("train").shards for token in shard)
    frequencies = label_frequencies(setup.base)
    assert frequencies is not None and frequencies.sum() == pytest.approx(1)
    total, size = sum(counts.values()), base.model_config.vocab_size
    for token in (0, *list(counts)[:20]):
        assert frequencies[token] == pytest.approx((counts[token] + 1) / (total + size))


def changed_model(model: Path, path: Path, changes: Callable[[Any], Any]) -> Path:
    """Return a copy of a model with other tensors, which a function of all of them returns."""
    shutil.copytree(model, path)
    file = path / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, **changes(tensors)}, file)
    manifest = read_json_record(path / MANIFEST, Manifest)
    files = {**manifest.files, file.name: hash_file(file)}
    changed = msgspec.structs.replace(manifest, files=files)
    (path / MANIFEST).write_bytes(encode_manifest(changed))
    return path


def with_bias(bias: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return tensors with which a model predicts what the bias says at all positions."""
    (name,) = (n for n, t in tensors.items() if n.startswith("head.") and t.shape == bias.shape)
    norms = [n for n in tensors if n.startswith("head.") and ".norm." in n]
    assert len(norms) == 2, list(tensors)
    zeros = {norm: torch.zeros_like(tensors[norm]) for norm in norms}
    return {**zeros, name: torch.tensor(bias, dtype=torch.float32)}


@pytest.mark.long
@pytest.mark.parametrize("knows", [True, False])
def test_a_teacher_without_knowledge_is_named(
    teacher: Path, tmp_path: Path, warnings_for: Callable[..., list[str]], knows: bool
) -> None:
    setup = make_setup(settings(teacher, "distilbert"))
    frequencies = label_frequencies(setup.base)
    assert frequencies is not None
    bias = np.log(frequencies)
    if knows:  # the frequencies of the labels themselves, which are better by Gibbs' inequality
        batches = setup.eval_batches(DistContext.initialize("cpu"))
        labels = np.concatenate([batch.tensors["labels"].numpy() for batch in batches])
        bias = np.log(np.bincount(labels, minlength=len(bias)) / len(labels) + 1e-9)
    else:
        bias[:200] -= 0.5
    changed = changed_model(teacher, tmp_path / "changed", partial(with_bias, bias))
    warned = warnings_for(settings(changed, "distilbert", distillation={"init_layers": None}))
    if knows:
        assert warned == []
    else:
        (line,) = warned
        assert "predicts held-out data no better than label frequencies do" in line


def test_a_classifier_without_knowledge_is_named(
    tmp_path: Path, warnings_for: Callable[..., list[str]]
) -> None:
    train = labelled(tmp_path / "t.tsv")
    run = finetune(tmp_path / "run", task_settings(pretrained("bert"), train, max_steps=3))

    def sure(tensors: dict[str, Any]) -> dict[str, Any]:
        return {n: 100 * t for n, t in tensors.items() if n.startswith("head.") and t.dim() == 2}

    teacher = changed_model(run / "model", tmp_path / "sure", sure)
    distilled = {
        "distillation": {"teachers": [str(teacher)], "recipe": "logits"},
        "student": narrow("distilbert"),
        "task": "text-classification",
        "data": {"train": [str(train)]},
    }
    (line,) = warnings_for(deep_merge(distilled, SETTINGS))
    assert "no better than label frequencies" in line


def test_tensors_that_were_new_at_the_conversion_are_named(
    teacher: Path, tmp_path: Path, warnings_for: Callable[..., list[str]]
) -> None:
    changed = shutil.copytree(teacher, tmp_path / "changed")
    manifest = read_json_record(changed / MANIFEST, Manifest)
    account = {"initialised": ["head.classifier.weight"]}
    (changed / MANIFEST).write_bytes(
        encode_manifest(msgspec.structs.replace(manifest, account=account))
    )
    line = warnings_for(settings(changed, "distilbert"))[0]
    assert "1 tensors of the teacher" in line and "head.classifier.weight" in line
