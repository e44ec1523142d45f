"""Every command in the documentation and in help texts parses, and the settings it gives exist.

Those of some pages are run, too: see tests/documentation/test_documented_examples.py.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tests.checkpoints import Make, hub_checkpoint
from tests.interfaces import ROOT, commands
from zoo.api.settings import (
    DISTILL_SETTINGS,
    FINETUNE_SETTINGS,
    PRETRAIN_SETTINGS,
    distill_settings,
)
from zoo.cli import cli
from zoo.cli.training import distill, finetune, pretrain
from zoo.cli.training.options import overrides_from_options, python_options
from zoo.data.readers.glue import GLUE
from zoo.distillation.config.build import STATIC, distill_config, requested_recipe
from zoo.errors import UsageError
from zoo.finetuning.config import finetune_config
from zoo.hub.registry import entries
from zoo.objectives.options import parse_options
from zoo.plugins.tasks import training_task
from zoo.training.config.schema import pretrain_config
from zoo.training.continuation import CHANGEABLE_SETTINGS, CHANGEABLE_TABLES

__all__ = ["hub_checkpoint"]
PAGES = sorted(
    (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/plugins/*/*.md"))
)
# the changelog has commands of former versions
TEXTS = [page.read_text("utf-8") for page in PAGES if page.name != "CHANGELOG.md"]
# those of the plugin in examples/plugins/toolbox, which tests/plugins/test_toolbox.py runs
PROVIDED = ("zoo tokens", "zoo run next-token")
# names in place of a family or a model, and families of the plugins that pages describe
PLACEHOLDERS = ("FAMILY", "REF", "mine", "rembert")
FAMILY = "bert"  # what the tests have in their place


def console_commands(text: str) -> Iterator[str]:
    """Yield the commands of code blocks, without the programs that start them."""
    for block in re.findall(r"```(?:console|bash)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.match(r"(?:\$ )?(?:[^#]*? -m )?(zoo [^$]+)$", line):
                yield shlex.join(shlex.split(match[1], comments=True))


def inline_commands(text: str) -> Iterator[str]:
    """Yield the commands in running text."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for command in re.findall(r"`(zoo [a-z][^`]*)`", prose):
        if not command.startswith(PROVIDED):
            yield " ".join(command.removesuffix(" ...").split())


def help_commands() -> Iterator[str]:
    """Yield the examples of help texts; two spaces separate comments."""
    for _, command in commands():
        text = re.sub(r" \\\n +", " ", command.epilog or "")  # commands of several lines
        yield from re.findall(r"^  (zoo .*?)(?:  .*)?$", text, re.MULTILINE)


COMPLETE = sorted({*(c for text in TEXTS for c in console_commands(text)), *help_commands()})
INLINE = sorted({c for text in TEXTS for c in inline_commands(text)} - {*COMPLETE})
OF_A_PLUGIN = "task_args.loss=power"  # a loss that docs/plugins.md writes
TRAINING = [
    line
    for line in COMPLETE
    if re.match(r"zoo (pretrain|finetune|distill) ", line) and OF_A_PLUGIN not in line
]


def parse(line: str) -> click.Context:
    """Return the context of a command as it is before the command is called.

    Raises:
        click.UsageError: a command, an option or a value is unknown.
    """
    line = line.partition(" > ")[0].removesuffix(" --help")
    words = shlex.split(re.sub("^zoo run TASK", "zoo run embed", line))[1:]
    command: click.Command = cli
    while words and isinstance(command, click.Group):
        _, child, words = command.resolve_command(click.Context(command), words)
        assert child is not None
        command = child
    return command.make_context(command.name, words) if words else click.Context(command)


@pytest.mark.parametrize("line", COMPLETE)
def test_a_command_parses(line: str) -> None:
    parse(line)


@pytest.mark.parametrize("line", INLINE)
def test_a_command_in_running_text_parses(line: str) -> None:
    """It may leave arguments out, and have words such as ``N`` for values."""
    try:
        parse(line)
    except click.MissingParameter:
        pass
    except click.BadParameter:
        assert re.search(r" [A-Z]+( |$)", line), line


def pretrain_settings(context: click.Context, make: Make) -> None:
    """Check the settings, without those of a pretrained model."""
    overrides = overrides_from_options(PRETRAIN_SETTINGS, context.params)
    if overrides.pop("init_from", None):
        overrides.pop("objective_args", None)
    family = context.params["family_or_file"] or FAMILY  # or that of the pretrained model
    pretrain_config({"family": FAMILY if family in PLACEHOLDERS else family}, overrides)


def finetune_settings(context: click.Context, make: Make) -> None:
    """Check the settings, with random weights of the model's family."""
    overrides = overrides_from_options(FINETUNE_SETTINGS, context.params)
    model, known = context.params["model"], entries()
    family = known[model].family if model in known else model
    family = FAMILY if "/" in family else family  # the model of a run
    overrides.pop("freeze_layers", None)  # of a pretrained model
    if context.params["suite"]:
        overrides |= {"task": "glue/cola", "data": {"train": ["GLUE"]}}
    config = finetune_config({"family": FAMILY if family in PLACEHOLDERS else family}, overrides)
    task = training_task(config.task)
    parse_options(task.options_type, config.task_args, task.name, "task")


def distillation_settings(context: click.Context, make: Make) -> None:
    """Check the settings, with tiny teachers."""
    settings = distill_settings(python_options(context.params), {})
    overrides = overrides_from_options(settings, context.params)
    kind = "BertForSequenceClassification" if "task" in overrides else "BertForMaskedLM"
    if overrides["student"]["name"] == STATIC:
        kind = "BertModel"
    teachers = overrides["distillation"]["teachers"]
    overrides["distillation"]["teachers"] = [str(make(kind)) for _ in teachers]
    if overrides["student"]["name"] in PLACEHOLDERS:
        overrides["student"]["name"] = FAMILY
    for stage in requested_recipe(overrides, offline=True).stages or (None,):
        overrides["distillation"]["stage"] = stage
        distill_config({}, overrides)


CHECKS = {
    pretrain.command: pretrain_settings,
    finetune.command: finetune_settings,
    distill.command: distillation_settings,
}


@pytest.fixture
def glue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with the directory ``GLUE``."""
    monkeypatch.chdir(tmp_path)
    for task in GLUE.values():
        folder = tmp_path / "GLUE" / task.folder
        folder.mkdir(parents=True)
        for name in ("train", *task.dev):
            (folder / f"{name}.tsv").touch()


def flat(settings: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Return nested settings by names with dots."""
    values: dict[str, Any] = {}
    for key, value in settings.items():
        inner = flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
        values |= inner
    return values


@pytest.mark.parametrize("line", TRAINING)
def test_the_settings_of_a_run_exist(line: str, glue: None, hub_checkpoint: Make) -> None:
    context = parse(line)
    if context.params["continue_from"] is not None:
        settings = {**PRETRAIN_SETTINGS, **FINETUNE_SETTINGS, **DISTILL_SETTINGS}
        given = overrides_from_options(settings, context.params)
        names = flat(given).keys() - CHANGEABLE_SETTINGS - {"num_train_epochs"}
        assert [name for name in sorted(names) if not name.startswith(CHANGEABLE_TABLES)] == []
    elif context.params["resume"] is None and ".yaml" not in line:
        CHECKS[context.command](context, hub_checkpoint)


def test_commands_are_found() -> None:
    assert len(COMPLETE) > 150 and len(INLINE) > 40 and len(TRAINING) > 40
    assert "zoo pretrain bert --size base --train corpus -o runs/base" in COMPLETE  # by torchrun
    assert "zoo run answer --handle-impossible-answer" in INLINE


def test_wrong_commands_are_noticed(glue: None, hub_checkpoint: Make) -> None:
    for line in ("zoo trian", "zoo run embed REF --top-k 2", "zoo export REF --int8 dynamical"):
        with pytest.raises(click.UsageError):
            parse(line)
    for line in (
        "zoo pretrain bert --set optimizer.lr=1",
        "zoo finetune bert --task glue/cola --train GLUE --set task_args.crv=true",
        "zoo distill --teacher A --student B --set student.layers=3",
    ):
        context = parse(line)
        with pytest.raises(UsageError):
            CHECKS[context.command](context, hub_checkpoint)
