"""``zoo.pretrain`` and ``zoo.finetune`` do and refuse what the commands do and refuse."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import zoo
from tests.checkpoints import Make, hub_checkpoint
from tests.finetuning.making import labelled
from tests.training.runs import SMALL, WIDTH, options
from zoo.api.settings import collect_settings, duration
from zoo.cli import cli
from zoo.errors import SourceError, UsageError

__all__ = ["hub_checkpoint"]
WEIGHTS = "model.safetensors"
# The settings that ``options`` gives as well.
SETTINGS = {**SMALL, "config": WIDTH}
RUN = {name: value for name, value in SETTINGS.items() if name != "max_steps" and value is not None}


def printed(*arguments: object) -> Any:
    outcome = CliRunner().invoke(cli, [*map(str, arguments), "--json"])
    assert outcome.exception is None, outcome.exception
    return json.loads(outcome.stdout)


def raised(*arguments: object) -> BaseException:
    outcome = CliRunner().invoke(cli, [*map(str, arguments)])
    assert outcome.exception is not None
    return outcome.exception


def test_pretraining_is_the_same_to_the_bit(tmp_path: Path) -> None:
    one, other = tmp_path / "function", tmp_path / "command"
    training = zoo.pretrain(
        "bert", settings={**RUN, "optimizer.max_grad_norm": 0.5}, max_steps=3, seed=2, output=one
    )
    more = ("--set", "optimizer.max_grad_norm=0.5", "--max-steps", 3, "--seed", 2)
    paths = printed("pretrain", "bert", *options(max_steps=None), *more, "-o", other)
    assert training.to_dict() == {
        name: path.replace(str(other), str(one)) for name, path in paths.items()
    }
    assert (training.model / WEIGHTS).read_bytes() == (other / "model" / WEIGHTS).read_bytes()
    assert training.report.is_file() and training.run == one and training.runs == ()
    (page,) = re.findall(r'srcdoc="([^"]*)"', training._repr_html_())
    assert unescape(page) == training.report.read_text("utf-8")
    again = zoo.pretrain(resume=one)
    assert again.paths == training.paths


@pytest.mark.long
def test_pretraining_over_seeds(tmp_path: Path) -> None:
    training = zoo.pretrain(
        "bert", settings=RUN, max_steps=1, seeds=2, threads=1, output=tmp_path / "runs"
    )
    assert training.runs == (tmp_path / "runs" / "seed-0", tmp_path / "runs" / "seed-1")
    assert training.run == tmp_path / "runs"
    assert training.to_dict() == {"runs": str(tmp_path / "runs")}
    with pytest.raises(UsageError, match="has no model of its own; each of `runs` has a model"):
        _ = training.model


@pytest.mark.long
def test_finetuning_over_seeds_has_the_model_of_the_median(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    source, table = hub_checkpoint("BertModel"), labelled(tmp_path / "t.jsonl")
    training = zoo.finetune(
        source,
        task="text-classification",
        train=table,
        eval=table,
        seeds=2,
        max_steps=2,
        settings={"batch_size": 4},
        output=tmp_path / "runs",
    )
    assert (training.model / WEIGHTS).is_file()
    assert sorted(training.to_dict()) == ["model", "runs", "summary"]
    result = zoo.load(training.model).classify(["a b"])[0]
    assert set(result["scores"]) == {"no", "yes"} or len(result["scores"]) == 2


CASES: list[tuple[str, dict[str, Any], tuple[object, ...]]] = [
    ("pretrain", {"family_or_file": "bret"}, ("bret",)),
    ("pretrain", {}, ()),
    ("pretrain", {"family_or_file": "bert", "size": "huge"}, ("bert", "--size", "huge")),
    ("pretrain", {"family_or_file": "bert", "train": "none.txt"}, ("bert", "--train", "none.txt")),
    ("pretrain", {"resume": "none"}, ("--resume", "none")),
    (
        "pretrain",
        {"family_or_file": "bert", "epochs": 1, "max_steps": 2},
        ("bert", "--epochs", 1, "--max-steps", 2),
    ),
    (
        "pretrain",
        {"family_or_file": "bert", "settings": {"lr": 1}},
        ("bert", "--set", "lr=1"),
    ),
    (
        "pretrain",
        {"family_or_file": "bert", "reset_optimizer": True},
        ("bert", "--reset-optimizer"),
    ),
    ("finetune", {}, ()),
    ("finetune", {"model": "bert", "task": "text"}, ("bert", "--task", "text")),
    ("distill", {}, ()),
    ("distill", {"file": "x.txt"}, ("x.txt",)),
    (
        "distill",
        {"teacher": "bert", "score": False, "min_retention": 0.5},
        ("--teacher", "bert", "--no-score", "--min-retention", 0.5),
    ),
]


@pytest.mark.parametrize(("name", "arguments", "words"), CASES)
def test_errors_are_those_of_the_command(
    name: str,
    arguments: dict[str, Any],
    words: tuple[object, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UsageError, SourceError)) as refusal:
        getattr(zoo, name)(**arguments)
    error = raised(name, *words)
    assert type(error) is refusal.type
    assert str(error) == str(refusal.value)


def test_an_option_that_no_task_has_is_refused() -> None:
    with pytest.raises(UsageError, match="has no option 'templates'; did you mean template"):
        zoo.finetune("bert", task="pet", templates=["{text} {label}"])


def test_settings_are_nested_or_have_dots() -> None:
    paths = {"max_steps": "max_steps", "learning_rate": "optimizer.learning_rate"}
    given = {"max_steps": 3, "learning_rate": 1e-3, "absent": None}
    settings = {"optimizer.eps": 1e-6, "optimizer": {"learning_rate": 2e-3}, "precision": None}
    assert collect_settings(paths, given, settings) == {
        "max_steps": 3,
        "optimizer": {"learning_rate": 2e-3, "eps": 1e-6},
        "precision": None,
    }


def test_a_time_is_seconds_or_a_text() -> None:
    assert (duration(90), duration("1h30m"), duration(None)) == (90.0, 5400.0, None)
    for value in (0, -1, float("nan"), float("inf"), "3", "soon"):
        with pytest.raises(UsageError, match="is not a time; give seconds, or a text such as 3m"):
            duration(value)
