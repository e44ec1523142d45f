"""Construction of a fine-tuning configuration from a preset, a file and options."""

from collections.abc import Mapping
from typing import Any

from zoo.errors import UsageError, did_you_mean
from zoo.families.base import Family
from zoo.families.presets import DEFAULT, PAPER
from zoo.finetune import task_type
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import ConfigDict, check_keys, deep_merge
from zoo.training.config.schema import validate_config


def build_config(
    values: Mapping[str, Any], overrides: Mapping[str, Any], *, offline: bool = False
) -> FineTuneConfig:
    """Return the configuration from the preset, a file and options, in increasing precedence.

    Args:
        values: settings of a file, or the model alone.
        overrides: settings of options.
        offline: make no network connection for a pretrained model.

    Raises:
        UsageError: a task, preset, setting or value is unknown or wrong.
        SourceError, VerificationError: the pretrained model is missing or damaged.
    """
    from zoo.plugins import get_family

    requested = deep_merge(values, overrides)
    check_keys(requested, FineTuneConfig, "", "settings")
    if not isinstance(requested.get("task"), str):
        raise UsageError("the settings name no task", "name one with --task")
    task = task_type(requested["task"])
    if not (requested.get("data") or {}).get("train"):
        raise UsageError("the settings name no training data", "name a file with --train")
    if "family" not in requested:
        requested["family"] = _family_name(requested, offline=offline)
    name, preset = _preset(get_family(requested["family"]), requested.get("preset"))
    return validate_config(
        deep_merge(preset, task.defaults, {"preset": name}, requested), FineTuneConfig
    )


def _family_name(requested: ConfigDict, *, offline: bool) -> str:
    """Return the family of the pretrained model.

    Raises:
        UsageError: there is none.
    """
    from zoo.convert.on_first_use import resolve_checkpoint

    reference = (requested.get("init_from") or {}).get("model")
    if not isinstance(reference, str):
        raise UsageError("the settings name no model", "name one as `init_from.model` or `family`")
    return resolve_checkpoint(reference, offline=offline).family.name


def _preset(family: Family, name: str | None) -> tuple[str, Mapping[str, Any]]:
    """Return name and settings of a preset, by default of the family's paper.

    Raises:
        UsageError: the family has no such preset.
    """
    presets = family.presets()
    name = name or (PAPER if PAPER in presets else DEFAULT)
    if name not in presets:
        raise UsageError(
            f"{family.name} has no preset {name!r}",
            did_you_mean(name, list(presets)) or f"it has {', '.join(presets)}",
        )
    return name, presets[name]
