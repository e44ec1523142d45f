"""Checks of a command line before the command imports what it runs: mistakes end at once."""

from pathlib import Path
from typing import Any

import click

from zoo.api.settings import config_file
from zoo.cli.parameter_types import (
    DirectoryType,
    InputFile,
    KeptFile,
    NamedReferenceType,
    ReferenceType,
)
from zoo.errors import SourceError, UsageError, did_you_mean
from zoo.io.numbers import int_from_environment


def require_one_process(ctx: click.Context) -> None:
    """Refuse that a launcher starts several processes of a command that runs in one.

    Raises:
        UsageError: a launcher such as ``torchrun`` did; only the first process says so.
    """
    processes = int_from_environment("WORLD_SIZE", 1)
    # Commands of training have this option.
    if processes < 2 or any(parameter.name == "fsdp" for parameter in ctx.command.params):
        return
    if int_from_environment("RANK", 0) != 0:
        raise click.exceptions.Exit(UsageError.exit_code)
    raise UsageError(
        f"`{ctx.command_path}` runs in one process, and {processes} were started",
        "start it without torchrun",
    )


def check_arguments(ctx: click.Context) -> None:
    """Check the references and paths of a command line."""
    # ``common_options`` calls this before every command. The checks open no connection and import
    # neither torch nor ONNX Runtime. What they cannot know, such as the contents of files, the
    # command checks itself.
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        values = value if isinstance(value, tuple) else (value,)
        for item in values:
            if item is not None:
                _check(ctx, parameter, item)


def _check(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    parameter_type = parameter.type
    metavar = parameter.metavar or ""
    if isinstance(parameter_type, NamedReferenceType):
        _check_reference(parameter_type.split(value)[1], {"REF"})
    elif isinstance(parameter_type, ReferenceType):
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
    if "CONFIG.yaml" in kinds and config_file(text) is not None:
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
    flags = ("force", "resume", "auto_resume")
    if any(options.get(flag) for flag in flags) or not path.exists():
        return
    if options.get("suite") is not None:
        raise UsageError(f"{path} exists", "go on with --auto-resume, or give another -o")
    if "auto_resume" in options:  # It trains.
        from zoo.training.state.location import require_new

        require_new(path, str(ctx.info_name))
    elif "force" in options:
        from zoo.io.output.overwrite import check_target

        check_target(path, force=False)
