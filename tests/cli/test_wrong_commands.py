"""Mistakes are answered before torch is imported, with the documented exit code."""

import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests import cold
from tests.in_process import exit_code
from tools.wrong_commands import HEAVY, MISTAKES, Answer, prepare, problems
from zoo.api.settings import check_settings
from zoo.cli import cli
from zoo.errors import UsageError, ZooError
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import check_keys, parse_override
from zoo.training.config.schema import TrainConfig


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_answered_before_heavy_imports(command: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    home = str(tmp_path / "home")
    environment = {"ZOO_HOME": home, "HF_HOME": home, "HF_HUB_OFFLINE": "1"}
    done = cold.zoo_again(*shlex.split(command), cwd=tmp_path, **environment)
    heavy = [name for name in HEAVY if name in done.modules]
    assert problems(command, Answer(done.returncode, done.stderr.strip(), heavy, 0)) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "home") == [
        "table.tsv",
        "taken",
        "text.txt",
    ]


def test_there_are_enough() -> None:
    assert len(MISTAKES) >= 40


@pytest.mark.parametrize(
    ("struct_type", "given", "meant"),
    [
        (TrainConfig, "lr=1", "optimizer.learning_rate"),
        (TrainConfig, "optimizer.lr=1", "optimizer.learning_rate"),
        (TrainConfig, "learning_rate=1", "optimizer.learning_rate"),
        (TrainConfig, "batch=8", "batch_size"),
        (TrainConfig, "epochs=8", "num_train_epochs"),
        (TrainConfig, "optimizer.warmup=8", "lr_scheduler.warmup_steps"),
        (TrainConfig, "dropout=0", "config.dropout"),
        (FineTuneConfig, "batch=8", "batch_size"),
        (FineTuneConfig, "epochs=8", "num_train_epochs"),
        (FineTuneConfig, "per-device-train-batch-size=8", "batch_size"),
        (FineTuneConfig, "maxLength=8", "max_seq_len"),
    ],
)
def test_usual_names_of_settings_are_understood(
    struct_type: type[TrainConfig] | type[FineTuneConfig], given: str, meant: str
) -> None:
    with pytest.raises(UsageError) as error:
        check_keys(parse_override(given), struct_type, "", "settings")
    assert error.value.hint == f"did you mean {meant}?"


def test_other_names_of_settings_of_text_pass() -> None:
    text = {"family": "bert", "num_train_epochs": 2, "batch_size": 8, "max_seq_len": 64}
    check_settings("pretrain", text, {}, None)
    check_settings("distill", {"num_train_epochs": 2, "batch_size": 8}, {}, None)
    with pytest.raises(UsageError, match="there is no setting batch; did you mean batch_size"):
        check_settings("pretrain", {**text, "batch": 8}, {}, None)


def test_a_setting_that_is_like_nothing_lists_all() -> None:
    with pytest.raises(UsageError, match="there are objective, "):
        check_keys({"zzz": 1}, TrainConfig, "", "settings")


@pytest.mark.parametrize(
    ("command", "values", "problem"),
    [
        ("pretrain", {"family": "bert", "size": "huge"}, "bert has no size 'huge'"),
        ("finetune", {"task": "glue/col"}, "cola"),
        ("distill", {"student": {"name": "x"}, "distillation": {"stages": {}}, "lr": 1}, "lr"),
    ],
)
def test_settings_of_a_file_are_checked(
    command: str, values: dict[str, object], problem: str
) -> None:
    with pytest.raises(UsageError, match=rf"run.yaml: .*{problem}"):
        check_settings(command, values, {}, Path("run.yaml"))


@pytest.mark.parametrize(
    "values", [{"student": {"name": "x", "num_layers": 2}}, {"task_args": {}}, {"seq_len": 8}]
)
def test_settings_of_either_kind_of_distillation_pass(values: dict[str, object]) -> None:
    overrides = {"distillation": {"teachers": ["a"], "stages": {}}}
    check_settings("distill", values, overrides, None)
    with pytest.raises(UsageError, match="there is no setting lr"):
        check_settings("distill", {"lr": 1, **values}, overrides, None)


def run(*arguments: str) -> str:
    """Return the error of a command."""
    with pytest.raises((click.ClickException, ZooError)) as error:
        CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    return str(error.value)


def test_a_size_of_the_teacher_is_a_student() -> None:
    """Sizes are known once the teacher is read, so the next argument is to blame."""
    teacher = ("--teacher", "bert-base-uncased", "--train", "missing.txt")
    assert "missing.txt does not exist" in run("distill", *teacher, "--student", "small")
    assert "'smal'" in run("distill", *teacher, "--student", "smal")


def test_patterns_and_named_files_are_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.tsv").touch()
    finetune = ("finetune", "bert", "--task", "seq2seq", "--size", "huge")
    for known in ("a.tsv", "*.tsv", "name=a.tsv", "."):
        assert "no size 'huge'" in run(*finetune, "--train", known)
    assert "*.csv matches nothing" in run(*finetune, "--train", "*.csv")
    assert "b.tsv does not exist" in run(*finetune, "--train", "name=b.tsv")


def test_a_run_to_resume_exists() -> None:
    assert "missing is not a run" in run("pretrain", "--resume", "missing")
    assert "missing is not a run" in run("finetune", "--continue-from", "missing")


@pytest.mark.parametrize(
    ("command", "meant"),
    [("corpus biuld", "build"), ("check resum", "resume"), ("plugins lst", "list"), ("rnu", "run")],
)
def test_a_misspelt_command_is_answered_with_the_nearest(command: str, meant: str) -> None:
    result = CliRunner().invoke(cli, command.split())
    assert result.exit_code == 2 and f"did you mean {meant}" in result.output.replace("'", "")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("finetune bert --lr 1", "no option is called --lr; did you mean --learning-rate?"),
        ("finetune bert --batch 8", "did you mean --batch-size?"),
        ("finetune bert --num-train-epochs 8", "did you mean --epochs?"),
        ("run zero-shot bert text --candidate-labels a", "did you mean --label?"),
        ("finetune bert --output-dir x", "did you mean --output?"),
        ("pretrain bert --warmup-steps 9", "--set lr_scheduler.warmup_steps=VALUE sets it"),
        ("pretrain bert --dropout 0", "--set config.dropout=VALUE sets it"),
        ("export bert --maxdrop 1", "did you mean --max-drop?"),
        ("models --zzz", "no option is called --zzz (see `zoo models --help`)"),
        ("embed text", "no command is called 'embed'; did you mean zoo run embed?"),
        ("zzz", "no command is called 'zzz' (see `zoo --help`)"),
        ("look bert text -o -", "standard output has other results; name a file"),
        ("eval bert --task perplexity --eval x --report -", "name a file"),
        ("run embed modle text", "no model is called 'modle'; did you mean model"),
    ],
)
def test_what_is_meant_is_named(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    assert exit_code(command.split()) == 2
    assert message in capfd.readouterr().err
