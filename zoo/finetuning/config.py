"""Construction of a fine-tuning configuration from a preset, a file and options."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.adapted_models.registry import with_adapter
from zoo.data.readers.glue import PREFIX, glue_files, glue_task
from zoo.data.readers.labelled import label_name
from zoo.errors import UsageError, did_you_mean
from zoo.families.presets import BY_TASK, DEFAULT, PAPER
from zoo.families.tasks import TaskSpec
from zoo.plugins.tasks import find_task, load_part, public_tasks
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import (
    ConfigDict,
    check_keys,
    check_tables,
    deep_merge,
    merge_settings,
)
from zoo.training.config.schema import validate_config

if TYPE_CHECKING:
    from zoo.finetuning.task import FineTuningTask


def task_settings(task: TaskSpec) -> dict[str, str]:
    """Return the settings that only some tasks, including this one, read -> the option of each."""
    options = {option.setting: option.flags for option in task.train_options}
    return options | {name: name for name in task.settings}


def optional_settings() -> dict[str, str]:
    """Return the settings that only some tasks read -> the option of each.

    ``task_args`` are left out: the task's class checks them.
    """
    settings: dict[str, str] = {}
    for task in public_tasks("train"):
        settings |= task_settings(task)
    return {name: flag for name, flag in settings.items() if not name.startswith("task_args.")}


def finetune_config(
    values: Mapping[str, Any],
    overrides: Mapping[str, Any],
    *,
    offline: bool = False,
    struct_type: type[FineTuneConfig] = FineTuneConfig,
) -> FineTuneConfig:
    """Return the configuration from the preset, a file and options, in increasing precedence."""
    from zoo.plugins import get_family

    check_tables(values, overrides)
    requested = merge_settings(values, overrides)
    check_keys(requested, struct_type, "", "settings")
    requested = _with_label_names(requested)
    if not isinstance(requested.get("task"), str):
        raise UsageError("the settings name no task", "name one with --task")
    data_set = requested["task"]  # such as glue/rte, for which presets may have settings
    if data_set.startswith(PREFIX):
        requested = _glue_settings(requested)
    spec = find_task(requested["task"], "train")
    task: FineTuningTask[Any] = load_part(spec, "train")
    requested = {**requested, "task": spec.name}
    if task.needs_teacher and struct_type is FineTuneConfig:
        raise UsageError(f"{task.name} can only be learned from a teacher", "see `zoo distill`")
    if not (requested.get("data") or {}).get("train"):
        raise UsageError("the settings name no training data", "name a file with --train")
    requested = {**requested, "data": task.data.find_dataset_files(requested["data"])}
    if "family" not in requested:
        from zoo.conversion.cache import resolve_checkpoint

        reference = (requested.get("init_from") or {}).get("model")
        if not isinstance(reference, str):
            raise UsageError(
                "the settings name no model", "name one as `init_from.model` or `family`"
            )
        requested["family"] = resolve_checkpoint(reference, offline=offline).family.name
    family = get_family(requested["family"])
    presets = family.presets()
    name = requested.get("preset") or (PAPER if PAPER in presets else DEFAULT)
    if name not in presets:
        raise UsageError(
            f"{family.name} has no preset {name!r}",
            did_you_mean(name, list(presets)) or f"it has {', '.join(presets)}",
        )
    preset = presets[name]
    # a preset freezes what was pretrained, and all of that is frozen next to an adapter
    freezes = "init_from" in requested and requested.get("adapter") is None
    if requested.get("random_weights"):
        freezes = False
    unused = (BY_TASK,) if freezes else (BY_TASK, "freeze_layers")
    shared = {key: value for key, value in preset.items() if key not in unused}
    of_task, of_data_set = (preset.get(BY_TASK, {}).get(n, {}) for n in (task.name, data_set))
    requested, of_adapter = with_adapter(requested)
    defaults = deep_merge(shared, task.defaults, of_task, of_data_set, of_adapter, {"preset": name})
    if "num_train_epochs" in requested:
        # The steps of the task's defaults would win.
        defaults.pop("max_steps", None)
    config = validate_config(deep_merge(defaults, requested), struct_type)
    _require_read(config, spec)
    return config


def _require_read(config: FineTuneConfig, task: TaskSpec) -> None:
    """Refuse settings that the task or the pretrained model would ignore."""
    task_names = {*task_settings(task), *config.data.settings_of_shares}
    for name, option in optional_settings().items():
        section, _, key = name.rpartition(".")
        owner = config.data if section else config
        default = next(f.default for f in msgspec.structs.fields(owner) if f.name == key)
        if name not in task_names and getattr(owner, key) != default:
            raise UsageError(f"{task.name} does not read {name}", f"leave {option} out")
    if config.random_weights:
        _require_new_weights(config)
    for name, option in (("size", "--size"), ("vocab_size", "vocab_size")):
        if config.init_from is not None and getattr(config, name) is not None:
            raise UsageError(f"a pretrained model keeps its {name}", f"leave {option} out")


def _require_new_weights(config: FineTuneConfig) -> None:
    """Refuse settings that keep pretrained weights in a run that begins with new ones."""
    if config.init_from is None:
        raise UsageError(
            "random_weights takes the configuration of a checkpoint, and init_from names none",
            "leave random_weights out: the run begins with new weights",
        )
    if config.adapter is not None:
        raise UsageError(
            "an adapter changes a pretrained model, and random_weights begins with new weights",
            "leave --adapter out",
        )
    if config.freeze_layers:
        raise UsageError(
            "frozen layers keep their weights, and with random_weights these are random",
            "leave --freeze out",
        )


def _with_label_names(requested: ConfigDict) -> ConfigDict:
    """Convert labels that are numbers to text, as in tables."""

    def name(label: Any) -> Any:
        return label_name(label, "settings") if isinstance(label, int) else label

    data = requested.get("data")
    weights = requested.get("class_weights")
    if isinstance(data, dict) and isinstance(data.get("labels"), list):
        names = list(map(name, data["labels"]))
        requested = {**requested, "data": {**data, "labels": names}}
    if isinstance(weights, dict):
        named_weights = {name(label): weight for label, weight in weights.items()}
        requested = {**requested, "class_weights": named_weights}
    return requested


def _glue_settings(requested: ConfigDict) -> ConfigDict:
    """Add the task, columns and files of a GLUE task to the settings."""
    task = glue_task(requested["task"])
    directories: list[str] = list((requested.get("data") or {}).get("train") or ())
    if len(directories) != 1:
        raise UsageError(
            f"{requested['task']} reads one directory, and there are {len(directories)}",
            "name the directory of GLUE's files with --train",
        )
    train, dev = glue_files(task, Path(directories[0]))
    columns = {"text": task.text, "pair": task.pair, "label": task.label}
    data: ConfigDict = {**columns, "eval": list(map(str, dev))}
    if task.has_broken_rows:
        data["skip_invalid"] = True
    defaults = {"metric_for_best_model": task.metrics[0], "data": data}
    return deep_merge(defaults, requested, {"task": task.task, "data": {"train": [str(train)]}})
