"""Commands in the documentation parse, and the settings that it names exist."""

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from zoo.cli.training.options import SETTINGS, config_values, overrides_from_options
from zoo.cli.training.pretrain import command
from zoo.training.config.schema import TrainConfig, build_config

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/pretraining.md", "docs/pretraining-curves.md")
NOT_SETTINGS = (
    "family_or_file",
    "resume",
    "seeds",
    "output",
    "device",
    "offline",
    "as_json",
)


def documented_arguments() -> list[str]:
    """Return the arguments of every documented ``zoo pretrain`` command with a family."""
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    lines = re.findall(r"zoo pretrain ((?:[^`\n#\"$]|\\\n)+)", text.replace("\\\n", " "))
    return sorted({line.strip() for line in lines if re.match(r"[a-z0-9]+( |$)", line)})


def test_every_setting_is_named() -> None:
    page = (ROOT / "docs/pretraining.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:--)?([a-z_]+)", page)) | set(re.findall(r" --([a-z]+)", page))
    assert {field.name for field in msgspec.structs.fields(TrainConfig)} <= named | {"family"}


def test_commands_are_documented() -> None:
    assert len(documented_arguments()) > 10 and "5e-4" in "\n".join(documented_arguments())


@pytest.mark.parametrize("line", documented_arguments())
def test_a_command_is_understood(line: str) -> None:
    ctx = command.make_context("pretrain", shlex.split(line))
    options = {name: value for name, value in ctx.params.items() if name not in NOT_SETTINGS}
    changes = overrides_from_options(ctx, SETTINGS, options)
    if changes.pop("init_from", None):  # a model that tests do not have
        changes.pop("objective_args", None)
    config = build_config(config_values(ctx.params["family_or_file"]), changes)
    assert config.family == ctx.params["family_or_file"]
