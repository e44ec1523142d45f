"""Checks of a command line before the command imports what it runs: mistakes end at once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from zoo.cli.parameter_types import DirectoryType, InputFile, KeptFile, ReferenceType
from zoo.errors import SourceError, UsageError, did_you_mean

CONFIG_FILES = (".yaml", ".yml")


def check_arguments(ctx: click.Context) -> None:
    """Check the references and paths of a command line."""
    # ``common_options`` calls ``check_arguments`` before every command, and commands of training
    # call ``check_settings``. The checks open no connection and import neither torch nor ONNX
    # Runtime. What they cannot know, such as the contents of files, the command checks itself.
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        values = value if isinstance(value, tuple) else (value,)
        for item in values:
            if item is not None:
                _check(ctx, parameter, item)


def _check(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    parameter_type = parameter.type
    metavar = parameter.metavar or ""
    if isinstance(parameter_type, ReferenceType):
        _check_reference(value, {*metavar.removesuffix("...").split("|")})
    elif isinstance(parameter_type, InputFile | KeptFile):
        from zoo.data.readers.documents import require_files
        from zoo.data.readers.text_io import split_name

        require_files(split_name(value)[1])
    elif isinstance(parameter_type, DirectoryType):
        _check_output(ctx, value)
    elif metavar == "RUN" and not value.is_dir():
        raise SourceError(f"{value} is not a run: it does not exist", "give a run's directory")


def _check_reference(text: str, kinds: set[str]) -> None:
    from zoo.plugins import all_families, get_family

    if text in kinds or ("FILE" in kinds and Path(text).is_file()):
        return
    if "CONFIG.yaml" in kinds and Path(text).suffix in CONFIG_FILES:
        if not Path(text).is_file():
            raise UsageError(f"{text} does not exist", "give a file of settings")
    elif "REF" not in kinds:
        get_family(text)
    elif "FAMILY" not in kinds or text not in all_families():
        from zoo.hub.reference import resolve

        try:
            resolve(text)
        except UsageError as error:
            if "SIZE" in kinds and any(text in get_family(n).sizes() for n in all_families()):
                return  # The command checks whether it is a size of the teacher's family.
            words = [kind for kind in kinds if kind.islower()]  # One of them is "train".
            raise UsageError(error.what, did_you_mean(text, words) or error.hint) from None


def _check_output(ctx: click.Context, path: Path) -> None:
    """Check that an output does not exist, unless the command replaces or resumes it."""
    options = ctx.params
    if options.get("force") or options.get("resume") or not path.exists():
        return
    if "resume" in options:
        from zoo.training.state.location import require_new

        require_new(path, str(ctx.info_name))
    elif "force" in options:
        from zoo.io.output.overwrite import check_target

        check_target(path, force=False)


def check_settings(
    command: str, values: Mapping[str, Any], overrides: Mapping[str, Any], file: Path | None
) -> None:
    """Check the names of the settings of a run, its family, size and task.

    Args:
        file: file that ``values`` are from, or ``None``.
    """
    from zoo.training.config.overrides import check_tables, deep_merge
    from zoo.training.config.schema import prefix_errors

    with prefix_errors(file):
        check_tables(values, overrides)
        settings = deep_merge(values, overrides)
        _check_keys(command, settings)
        _check_names(settings)


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
