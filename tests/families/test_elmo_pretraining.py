"""Pretraining of ELMo: falling loss, micro-batches, saved states, and the resulting checkpoint."""

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.families.elmo_files import published
from tests.families.elmo_streams import (
    ELMO,
    losses,
    make_model,
    objective,
    random_split,
    rows,
)
from tests.training.conftest import shared_home, training_home
from tests.training.runs import DATA
from tests.warm import zoo
from zoo.checkpoint import load_checkpoint, load_text_tokenizer
from zoo.errors import UsageError
from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig
from zoo.inference.torch_session import TorchSession
from zoo.inspection.inspection import Inspector
from zoo.objectives.base import Batch, Example
from zoo.objectives.losses.sampled_softmax import SampledOptions
from zoo.training.config.overrides import deep_merge
from zoo.training.config.schema import TrainConfig
from zoo.training.distributed.context import DistContext
from zoo.training.distributed.parallelize import parallelize
from zoo.training.loss_module import LossModule
from zoo.training.run import PretrainRun
from zoo.training.state.checkpoints import CheckpointMeta
from zoo.training.state.recovery import SavedCheckpoint
from zoo.training.state.state_dict import load_trainer_state_dict, trainer_state_dict
from zoo.training.trainer import Trainer
from zoo_elmo.config import SIZES

__all__ = ["shared_home", "training_home"]
HERE = DistContext(0, 1, torch.device("cpu"))


def make_config(**changes: Any) -> TrainConfig:
    known: dict[str, Any] = {
        "objective": "bidirectional-lm",
        "family": "elmo",
        "seq_len": 5,
        "global_batch_tokens": 20,
        "max_steps": 40,
        "optimizer": OptimizerConfig(
            name="adagrad", learning_rate=0.2, initial_accumulator_value=1 / 25, max_grad_norm=2.0
        ),
        "lr_scheduler": LRSchedulerConfig(name="constant"),
    }
    return TrainConfig(**known | changes)


def trainer(rows_at_once: int = 4, samples: int | None = None, **config: Any) -> Trainer:
    task = objective(5, samples, **config)
    micros = [range(k, k + rows_at_once) for k in range(0, 4, rows_at_once)]
    loader: Any = SimpleNamespace(
        micro_batches=micros,
        state_dict=lambda step, dist: {},
        load_state_dict=lambda step, tensors: None,
    )
    return Trainer(LossModule(task, make_model(task)), make_config(), HERE, loader)


@cache
def all_rows(samples: int | None) -> list[Example]:
    """Return the rows of one document, which hundreds of batches are taken from."""
    return rows(random_split(900), 5, samples)


def batches(of: Trainer, step: int, samples: int | None = None) -> list[Batch]:
    """Return batches of four streams in windows of five words."""
    every = all_rows(samples)
    lane = len(every) // 4
    picked = [every[place * lane + step % lane] for place in range(4)]
    task = of.loss_module.objective
    return [
        task.collate(picked[micro.start : micro.stop])
        for micro in of.train_dataloader.micro_batches
    ]


@pytest.mark.long
def test_the_loss_falls() -> None:
    taught = trainer(samples=20, dropout=0.1)
    task = taught.loss_module.objective
    before = taught.evaluate(batches(taught, 50, 20))["loss"]
    assert before == pytest.approx(np.log(40), rel=0.1)
    for step in range(30):
        taught.train_step(batches(taught, step % 3, 20))
    assert taught.train_metrics.compute_and_reset(task.loss_weights)["loss"] > 0
    after = taught.evaluate(batches(taught, 1, 20))["loss"]
    assert after < before - 0.3


def test_validation_rows_start_with_zero_state() -> None:
    taught = trainer()
    task = taught.loss_module.objective
    windows = rows(random_split(50), 5)[:3]
    metrics = taught.evaluate([task.collate([row]) for row in windows])
    alone = [
        losses(task.compute_loss(taught.loss_module.model, task.collate([r]).tensors))
        for r in windows
    ]
    mean = (
        sum(
            row_losses[way] * share
            for row_losses in alone
            for way, share in task.loss_weights.items()
        )
        / 15
    )
    assert metrics["loss"] == pytest.approx(mean, rel=1e-9)


def test_micro_batches_equal_the_whole_batch() -> None:
    whole, parts = trainer(4), trainer(2)
    for step in range(3):  # each micro-batch has its own state
        for taught in (whole, parts):
            taught.train_step(batches(taught, step))
    assert len(parts.recurrent_states) == 2 and len(whole.recurrent_states) == 1
    for first, second in zip(
        whole.loss_module.parameters(), parts.loss_module.parameters(), strict=True
    ):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rows_at_once", [4, 2])
def test_resume_is_bit_exact(rows_at_once: int, tmp_path: Path) -> None:
    whole, half = (trainer(rows_at_once, samples=20, dropout=0.1) for _ in range(2))
    for step in range(5):
        whole.train_step(batches(whole, step, 20))
    for step in range(3):
        half.train_step(batches(half, step, 20))
    state = trainer_state_dict(half)
    assert {len(tensor) for tensor in state["memory"].values()} == {4}
    resumed = trainer(rows_at_once, samples=20, dropout=0.1)
    groups = {k: {n: t.clone() for n, t in v.items()} for k, v in state.items()}
    load_trainer_state_dict(resumed, groups, SavedCheckpoint(tmp_path, CheckpointMeta(step=3)))
    resumed.step = 3
    for step in range(3, 5):
        resumed.train_step(batches(resumed, step, 20))
    for first, second in zip(
        whole.loss_module.parameters(), resumed.loss_module.parameters(), strict=True
    ):
        assert torch.equal(first, second)
    assert torch.equal(
        whole.train_metrics.values["forward"], resumed.train_metrics.values["forward"]
    )
    for name, tensor in whole.recurrent_states[0].items():
        assert torch.equal(tensor, resumed.recurrent_states[0][name])


def test_gradient_checkpointing_changes_nothing() -> None:
    plain, again = trainer(), trainer()
    again.parallel_module = parallelize(
        again.loss_module, make_config(gradient_checkpointing=True), HERE
    )
    for step in range(2):
        for taught in (plain, again):
            taught.forward_backward(batches(taught, step))
    for first, second in zip(
        plain.loss_module.parameters(), again.loss_module.parameters(), strict=True
    ):
        assert first.grad is not None and second.grad is not None
        torch.testing.assert_close(first.grad, second.grad, rtol=0, atol=1e-14)


# From pretraining to inference


@pytest.mark.parametrize("size", list(SIZES))
def test_recipes_are_valid(size: str) -> None:
    recipe = ELMO.recipe(size)
    assert recipe.objective in ELMO.objectives
    assert recipe.global_batch_tokens % recipe.seq_len == 0
    SampledOptions(**recipe.objective_args)


def test_corpus_vocabulary_may_exceed_the_models(isolated: None, tmp_path: Path) -> None:
    text, corpus, run = (str(tmp_path / name) for name in ("text.txt", "corpus", "run"))
    words = [f"word{number % (1 + number % 97)}" for number in range(4000)]
    lines = [" ".join(words[k : k + 8]) for k in range(0, 4000, 8)]
    Path(text).write_text("\n\n".join(lines))
    tokens = ["--tokenizer", "train", "--family", "elmo", "--vocab-size", "90"]
    assert zoo("corpus", "build", text, "-o", corpus, *tokens).returncode == 0
    few = ["--max-steps", "2", "--global-batch-tokens", "80", "--set", "config.vocab_size=30"]
    done = zoo("pretrain", "elmo", "-o", run, "--train", corpus, *few, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    written = json.loads((Path(run) / "model" / "config.json").read_text())
    assert written["config"]["vocab_size"] == 30


SMALL = {"seq_len": 10, "global_batch_tokens": 40, "max_steps": 2, "vocab_size": 300}


def started(path: Path, **changes: Any) -> Path:
    PretrainRun(deep_merge({"family": "elmo", **SMALL}, changes), HERE, path).start()
    return path / "model"


@pytest.mark.long
def test_words_that_elmo_predicts_are_shown(shared_home: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(started(tmp_path / "run"))
    session = TorchSession(checkpoint, "cpu")
    look = Inspector(checkpoint, session, load_text_tokenizer(checkpoint)).look("elmo", ["a cat"])
    words = json.loads((checkpoint.path / "tokenizer.json").read_text())["model"]["vocab"]
    for found in look.texts[0].stacks[0].predictions:
        shown = {word for layer in found.tokens for best in layer for word in best}
        assert sorted(shown - words.keys()) == []


@pytest.mark.long
def test_run_from_a_model_has_its_vocabulary(isolated: None, tmp_path: Path) -> None:
    first = started(tmp_path / "first")
    model = started(tmp_path / "second", init_from={"model": str(first)})
    assert (model / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    weights = tmp_path / "second" / "checkpoints" / "step-00000000" / "weights.safetensors"
    assert load_file(weights).keys() == load_file(first / "model.safetensors").keys()
    for name, tensor in load_file(first / "model.safetensors").items():
        assert torch.equal(load_file(weights)[name], tensor), name


@pytest.mark.long
def test_published_model_is_trained_on_another_vocabulary(isolated: None, tmp_path: Path) -> None:
    """The released models have neither a word vocabulary nor a softmax layer."""
    source, golden = published(tmp_path / "published")
    start: dict[str, Any] = {"model": str(source)}
    with pytest.raises(UsageError, match=r"has no tokenizer\.json; --tokenizer train makes one"):
        started(tmp_path / "run", init_from=start)
    new: dict[str, Any] = {"tokenizer": "train"}
    with pytest.raises(UsageError, match=r"has no head, .* --set init_from\.new_modules=\[head\]"):
        started(tmp_path / "run", init_from=start, data=new)
    model = started(tmp_path / "run", init_from={**start, "new_modules": ["head"]}, data=new)
    written = json.loads((model / "config.json").read_text())
    assert written["config"]["vocab_size"] == 300 != golden.hub_config.get("n_tokens_vocab")


def test_special_words_must_be_in_the_models_vocabulary(shared_home: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One fox saw another fox near the old barn.\n\n" * 200)
    data = {"paths": [str(text)]}
    with pytest.raises(UsageError, match=r"config\.vocab_size is 2, .* numbers up to 2"):
        started(tmp_path / "run", config={"vocab_size": 2}, data=data)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_final_model_of_a_run_embeds_texts(isolated: None, tmp_path: Path) -> None:
    run, bare = str(tmp_path / "run"), str(tmp_path / "bare")
    few = [
        "--max-steps",
        "2",
        "--global-batch-tokens",
        "80",
        "--set",
        "vocab_size=300",
        "--device",
        "cpu",
    ]
    assert zoo("pretrain", "elmo", "-o", run, *DATA, *few).returncode == 0
    written = json.loads((Path(run) / "model" / "config.json").read_text())
    assert (written["head"], written["config"]["vocab_size"]) == ("bidirectional-lm", 300)
    refused = zoo("run", "embed", f"{run}/model", "a text")
    assert refused.returncode == 2 and "--head none" in refused.stderr
    assert zoo("convert", f"{run}/model", "--head", "none", "-o", bare).returncode == 0
    hub, back = str(tmp_path / "hub"), str(tmp_path / "back")
    assert zoo("convert", f"{run}/model", "--to", "hub", "-o", hub).returncode == 0
    assert zoo("convert", hub, "-o", back).returncode == 0  # the published layout
    result = zoo("run", "embed", bare, "a text")
    assert result.returncode == 0, result.stderr
    size = written["config"]["projection_size"]
    assert len(json.loads(result.stdout)["embedding"]) == 2 * size
