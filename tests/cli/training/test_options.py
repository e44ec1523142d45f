"""Options of the training commands, and the settings that they are."""

from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from tests.training.runs import SMALL
from zoo.api.settings import SHARED_SETTINGS
from zoo.cli.training import distill, finetune, pretrain
from zoo.cli.training.options import DurationType
from zoo.errors import UsageError
from zoo.families.recipe import OptimizerConfig
from zoo.plugins import get_family
from zoo.training.config.distill import DistillTaskConfig, DistillTextConfig
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import deep_merge
from zoo.training.config.schema import EpochsConfig, pretrain_config


@pytest.mark.parametrize("command", [pretrain.command, finetune.command, distill.command])
def test_all_commands_have_the_options(command: click.Command) -> None:
    names = {parameter.name for parameter in command.params}
    assert {*SHARED_SETTINGS, "max_time", "threads", "force"} - names == set()


def test_their_settings_exist() -> None:
    text = {"batch_size", "max_seq_len"}  # which are converted
    for struct in (EpochsConfig, FineTuneConfig, DistillTextConfig, DistillTaskConfig):
        known = {field.name for field in msgspec.structs.fields(struct)} | text
        known |= {f"optimizer.{field.name}" for field in msgspec.structs.fields(OptimizerConfig)}
        assert {*SHARED_SETTINGS.values()} - known == set(), struct


def test_rows_are_tokens_of_the_recipes_length() -> None:
    recipe = get_family("bert").recipe("tiny")
    config = pretrain_config({"family": "bert"}, {"batch_size": 3})
    assert config.global_batch_tokens == 3 * recipe.seq_len
    assert config.global_batch_size == 3


def test_an_option_replaces_what_a_file_sets_otherwise() -> None:
    file = {"family": "gpt", "seq_len": 64, "global_batch_tokens": 640}
    assert pretrain_config(file, {"batch_size": 2}).global_batch_tokens == 128
    assert pretrain_config(file, {"max_seq_len": 32}).seq_len == 32
    rows = {"family": "gpt", "seq_len": 64, "batch_size": 2}
    assert pretrain_config(rows, {"global_batch_tokens": 640}).global_batch_tokens == 640
    with pytest.raises(UsageError, match="batch_size and global_batch_tokens set the same thing"):
        pretrain_config({**file, "batch_size": 2}, {})
    with pytest.raises(UsageError, match="batch_size is 'two', which is not a number"):
        pretrain_config(file, {"batch_size": "two"})
    assert isinstance(
        pretrain_config({**file, "max_steps": 9}, {"num_train_epochs": 2}), EpochsConfig
    )
    assert pretrain_config({**file, "num_train_epochs": 2}, {"max_steps": 9}).max_steps == 9


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("learning_rate", "optimizer.learning_rate"),
        ("lr", "optimizer.learning_rate"),
        ("warmup_steps", "lr_scheduler.warmup_steps"),
        ("batch", "batch_size"),
        ("epochs", "num_train_epochs"),
        ("optimiser", "optimizer"),
    ],
)
def test_a_setting_that_is_nested_is_suggested(key: str, name: str) -> None:
    values: dict[str, Any] = deep_merge({"family": "gpt"}, SMALL)
    with pytest.raises(UsageError, match=rf"there is no setting {key}; did you mean {name}"):
        pretrain_config(values, {key: 1})


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("3m", 180), ("1h30m", 5400), ("1.5m", 90), ("1d", 86400)]
)
def test_times(text: str, seconds: float) -> None:
    assert DurationType().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["3", "0s", "m", "3 m", "-3m", "3min", "1e3s", "9" * 400 + "s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a time, such as 90s, 3m or 1h30m"):
        DurationType().convert(text, None, None)


@pytest.mark.parametrize(
    "pair", [("--epochs", "--max-steps"), ("--batch-size", "--global-batch-tokens")]
)
def test_options_that_exclude_each_other(pair: tuple[str, str]) -> None:
    words = [word for name in pair for word in (name, "64")]
    done = CliRunner().invoke(pretrain.command, ["gpt", *words])
    assert isinstance(done.exception, UsageError)
    assert f"{pair[0]} and {pair[1]} exclude each other" in str(done.exception)
