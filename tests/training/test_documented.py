"""The page about pretraining names all settings."""

import re
from pathlib import Path

import msgspec

from zoo.training.config.schema import TrainConfig

ROOT = Path(__file__).parents[2]


def test_every_setting_is_named() -> None:
    page = (ROOT / "docs/pretraining.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:--)?([a-z_]+)", page)) | set(re.findall(r" --([a-z]+)", page))
    assert {field.name for field in msgspec.structs.fields(TrainConfig)} <= named | {"family"}
