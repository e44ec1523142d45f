"""Settings of runs that are given as options, and checks of them that import no torch."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import SourceError, UsageError
from zoo.io.numbers import parse_float
from zoo.plugins.tasks import find_tasks, public_tasks

# Option of all functions of training -> path of the setting.
SHARED_SETTINGS = {
    "learning_rate": "optimizer.learning_rate",
    "epochs": "num_train_epochs",
    "max_steps": "max_steps",
    "batch_size": "batch_size",
    "max_seq_len": "max_seq_len",
    "report_to": "report_to",
    "fsdp": "fsdp",
    "keep_optimizer": "keep_optimizer",
    "seed": "seed",
}
PRETRAIN_SETTINGS = SHARED_SETTINGS | {
    "size": "size",
    "objective": "objective",
    "adapter": "adapter.method",
    "init_from": "init_from.model",
    "train": "data.paths",
    "eval": "data.eval_paths",
    "text": "data.reader.text_field",
    "streaming": "data.streaming",
    "weight": "data.sources.NAME.weight",
    "tokenizer": "data.tokenizer",
    "lowercase": "data.lowercase",
    "strip_accents": "data.strip_accents",
    "global_batch_tokens": "global_batch_tokens",
}
FINETUNE_SETTINGS = SHARED_SETTINGS | {
    "task": "task",
    "train": "data.train",
    "eval": "data.eval",
    "text": "data.text",
    "weight": "data.weights.NAME",
    "pair": "data.pair",
    "label": "data.label",
    "skip_invalid": "data.skip_invalid",
    "preset": "preset",
    "adapter": "adapter.method",
    "global_tokens": "config.global_tokens",
    "freeze": "freeze_layers",
    "tokenizer": "tokenizer",
    "lowercase": "lowercase",
    "strip_accents": "strip_accents",
    "size": "size",
}
DISTILL_SETTINGS = SHARED_SETTINGS | {
    "teacher": "distillation.teachers",
    "student": "student.name",
    "recipe": "distillation.recipe",
    "train": "data.paths",
    "eval": "data.eval_paths",
    "weight": "data.sources.NAME.weight",
    "objective": "objective",
    "task": "task",
    "text": "data.text",
    "pair": "data.pair",
    "label": "data.label",
    "skip_invalid": "data.skip_invalid",
    "preset": "preset",
    "align": "distillation.align",
    "teacher_backend": "distillation.teacher_backend",
    "cache_teacher": "distillation.cache_teacher",
    "global_batch_tokens": "global_batch_tokens",
}
# Setting of paths without names -> setting of a source.
SOURCE_SETTINGS = {"data.paths": "paths", "data.eval_paths": "eval_paths"}
# Option -> setting of the data of a distillation with a task.
LABELLED_DATA = {"train": "data.train", "eval": "data.eval", "weight": "data.weights.NAME"}
# Options that exclude each other.
EXCLUSIVE = (("epochs", "max_steps"), ("batch_size", "global_batch_tokens"))
CONFIG_FILES = (".yaml", ".yml")
TABLES = (".csv", ".tsv")  # Endings of files that are not read as text.
# Unit of a time -> its seconds.
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float | None:
    """Return a time such as ``90s``, ``3m`` or ``1h30m`` in seconds; ``None`` if it is none."""
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
    seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if "".join(map("".join, parts)) != text or not 0 < seconds < math.inf:
        return None
    return seconds


def duration(value: str | float | None) -> float | None:
    """Return the argument ``max_time`` in seconds."""
    if value is None:
        return None
    seconds = parse_duration(value) if isinstance(value, str) else float(value)
    if seconds is None or not 0 < seconds < math.inf:
        raise UsageError(f"{value!r} is not a time", "give seconds, or a text such as 3m or 1h30m")
    return seconds


def collect_settings(
    paths: Mapping[str, str], options: Mapping[str, Any], settings: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the settings of the options that were given, nested; ``settings`` override them.

    Args:
        paths: option -> path of its setting.
        options: option -> value; ``None`` or an empty tuple where it was not given.
        settings: further settings, nested or by their paths with dots.
    """
    from zoo.training.config.overrides import deep_merge

    names = [name for name in paths if options.get(name) not in (None, ())]
    for pair in EXCLUSIVE:
        if set(pair) <= set(names):
            flags = [f"--{name.replace('_', '-')}" for name in pair]
            raise UsageError(f"{' and '.join(flags)} exclude each other", "give one")
    trees = []
    for name in names:
        value = options[name]
        if paths[name] in SOURCE_SETTINGS:
            trees += source_settings(paths[name], value)
        elif name == "weight":
            trees += weight_settings(paths[name], value)
        else:
            trees.append(nested(paths[name], value))
    trees += [nested(path, value) for path, value in (settings or {}).items()]
    return deep_merge(*trees)


def source_settings(path: str, values: Sequence[str]) -> list[dict[str, Any]]:
    """Return the settings of paths of text, which may each have the name of a source.

    Args:
        path: path of the setting for paths without names.
        values: paths, each as ``PATH`` or ``NAME=PATH``; a name may have several paths.
    """
    from zoo.data.readers.text_io import split_name

    paths: dict[str, list[str]] = {}
    for value in values:
        name, file = split_name(value)
        paths.setdefault(name, []).append(file)
    trees = []
    for name, files in paths.items():
        if name:
            tree = {"data": {"sources": {name: {SOURCE_SETTINGS[path]: tuple(files)}}}}
        else:
            tree = nested(path, tuple(files))
        trees.append(tree)
    return trees


def weight_settings(path: str, values: Mapping[str, float] | Sequence[str]) -> list[dict[str, Any]]:
    """Return the settings of the weights of sources.

    Args:
        path: path of the settings, with ``NAME`` for the name of a source.
        values: source -> weight, or texts ``NAME=WEIGHT``.
    """
    weights = dict(values) if isinstance(values, Mapping) else parse_weights(values)
    trees = []
    for name, weight in weights.items():
        tree: Any = weight
        for key in reversed(path.split(".")):
            tree = {name if key == "NAME" else key: tree}
        trees.append(tree)
    return trees


def parse_weights(texts: Sequence[str]) -> dict[str, float]:
    """Return the weights of ``--weight NAME=WEIGHT``; each name may be given once."""
    weights: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        weight = parse_float(number)
        if not name or weight is None:
            raise UsageError(
                f"--weight {text!r} is not the weight of a source", "such as --weight books=0.3"
            )
        if name in weights:
            raise UsageError(f"--weight {name} is given twice", "give it once")
        weights[name] = weight
    return weights


def nested(path: str, value: Any) -> dict[str, Any]:
    """Return the settings with one value, whose path has dots."""
    tree = value
    for key in reversed(path.split(".")):
        tree = {key: tree}
    assert isinstance(tree, dict), "a path has at least one key"
    return tree


def task_settings(task: str | None) -> dict[str, str]:
    """Return option -> path of the setting of what tasks declare for fine-tuning.

    These are the options of all built-in tasks, and of the named one of a plugin.
    """
    settings: dict[str, str] = {}
    for spec in public_tasks("train"):
        for option in spec.train_options:
            settings.setdefault(option.name, option.setting)
    if task is None:
        return settings
    try:
        specs = find_tasks(task, "train")
    except UsageError:  # The check of the settings reports it.
        return settings
    for spec in specs:
        for option in spec.train_options:
            settings[option.name] = option.setting
    return settings


def distill_settings(options: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
    """Return option -> path of the setting: data is text, or labelled with a task.

    Args:
        options: options of distillation; ``settings`` is nested or has paths with dots.
        values: settings of a file.
    """
    from zoo.training.config.overrides import read_config_file
    from zoo.training.state.run_manifest import SETTINGS as RECORD

    run = options["resume"] or options["continue_from"]
    recorded = read_config_file(run / RECORD) if run and (run / RECORD).is_file() else {}
    if options["task"] is not None or "task" in {*values, *recorded, *(options["settings"] or {})}:
        return {**DISTILL_SETTINGS, **LABELLED_DATA}
    for path in (*options["train"], *options["eval"]):
        if Path(path).suffix.lower() in TABLES:
            raise UsageError(f"{path} is a table of labelled data", "name its task with --task")
    return DISTILL_SETTINGS


def config_file(text: str | None) -> Path | None:
    """Return the configuration file that an argument names, or ``None`` if it names a family."""
    if text is None or Path(text).suffix not in CONFIG_FILES:
        return None
    return Path(text)


def pretrain_values(family_or_file: str | None) -> dict[str, Any]:
    """Return the settings of a configuration file, or of a family's name."""
    from zoo.training.config.overrides import read_config_file

    if family_or_file is None:
        return {}
    file = config_file(family_or_file)
    return {"family": family_or_file} if file is None else read_config_file(file)


def finetune_values(model: str | None) -> dict[str, Any]:
    """Return the settings of a file, of a family with random weights, or of a reference."""
    from zoo.plugins import all_families
    from zoo.training.config.overrides import read_config_file

    if model is None:
        return {}
    file = config_file(model)
    if file is not None:
        return read_config_file(file)
    if model in all_families():
        return {"family": model}
    return {"init_from": {"model": model}}


def distill_values(file: str | None) -> dict[str, Any]:
    """Return the settings of a file, or none."""
    from zoo.training.config.overrides import read_config_file

    if file is None:
        return {}
    path = config_file(file)
    if path is None:
        raise UsageError(
            f"{file} is not a YAML file",
            f"give a model as --teacher {file}, a text as --train {file}",
        )
    return read_config_file(path)


def check_places(
    command: str,
    data: Sequence[str],
    output: Path | None,
    *,
    force: bool,
    resume: Path | None,
    continue_from: Path | None,
) -> None:
    """Check that data and runs exist, and that the directory of a new run does not."""
    from zoo.data.readers.documents import require_files
    from zoo.data.readers.text_io import split_name

    for path in data:
        require_files(split_name(path)[1])
    for run in (resume, continue_from):
        if run is not None and not run.is_dir():
            raise SourceError(f"{run} is not a run: it does not exist", "give a run's directory")
    if output is not None and output.exists() and not force and resume is None:
        from zoo.training.state.location import require_new  # imports torch

        require_new(output, command)


def check_settings(
    command: str,
    values: Mapping[str, Any],
    overrides: Mapping[str, Any],
    file: Path | None,
    *,
    resuming: bool = False,
) -> None:
    """Check the names of the settings of a run, its family, size and task.

    Args:
        file: file that ``values`` are from, or ``None``.
        resuming: whether a run is resumed or continued, which has a task.
    """
    from zoo.training.config.overrides import check_tables, deep_merge
    from zoo.training.config.schema import prefix_errors

    with prefix_errors(file):
        check_tables(values, overrides)
        settings = deep_merge(values, overrides)
        _check_keys(command, settings)
        _check_names(settings)
        if command == "finetune" and "task" not in settings and not resuming:
            raise _missing_task(settings)


def _missing_task(settings: Mapping[str, Any]) -> UsageError:
    """Return the error of fine-tuning without a task."""
    from zoo.api.fitting_tasks import missing_task

    model = settings.get("family") or settings.get("init_from", {}).get("model")
    data = settings.get("data", {})
    columns = {name: data.get(name) for name in ("text", "pair", "label")}
    columns["negative"] = data.get("negatives")
    return missing_task("train", model, data.get("train", ()), columns)


def _check_keys(command: str, settings: Mapping[str, Any]) -> None:
    from zoo.training.config.overrides import check_keys
    from zoo.training.config.run_config import config_type
    from zoo.training.config.synonyms import ALTERNATIVES

    types = [config_type(command, settings)]
    if command == "distill":
        # A recipe may name the task, and has settings that become others.
        settings = dict(settings)
        settings.pop("student", None)
        settings.pop("distillation", None)
        types.append(config_type(command, {"task": ""}))
    problems = []
    for struct_type in types:
        fields = {*struct_type.__struct_fields__}
        checked_settings = {}
        for name, value in settings.items():
            if name in fields or name not in ALTERNATIVES:
                checked_settings[name] = value
        try:
            return check_keys(checked_settings, struct_type, "", "settings")
        except UsageError as error:
            problems.append(error)
    raise problems[0]


def _check_names(settings: Mapping[str, Any]) -> None:
    """Check the names of task, family and size, and the settings of an adapter."""
    from zoo.adapted_models.registry import parse_adapter
    from zoo.data.readers.glue import PREFIX, glue_task
    from zoo.plugins import get_family
    from zoo.plugins.attribution import config_of_size
    from zoo.plugins.tasks import find_task

    task = settings.get("task")
    family = settings.get("family")
    size = settings.get("size")
    if settings.get("adapter"):
        parse_adapter(settings["adapter"])
    if task and task.startswith(PREFIX):
        glue_task(task)
    elif task:
        find_task(task, "train")
    if family:
        config_of_size(get_family(family), size if isinstance(size, str) else "tiny")
