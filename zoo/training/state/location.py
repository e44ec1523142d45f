"""Where a run began, and where its data is: the paths of its settings."""

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from zoo.data.readers.text_io import split_name
from zoo.errors import Interrupted, UsageError
from zoo.io.urls import is_remote
from zoo.training.config.distill import DistillTaskConfig, DistillTextConfig
from zoo.training.config.overrides import ConfigDict, deep_merge
from zoo.training.config.run_config import RunConfig

TEACHERS = ("distillation", "teachers")
TOKENIZER = ("data", "tokenizer")
# Setting that names data, as a path of keys -> its option. Files with the same contents may take
# their place.
DATA_OPTIONS: dict[tuple[str, ...], str] = {
    ("data", "paths"): "--train",
    ("data", "eval_paths"): "--eval",
    ("data", "train"): "--train",
    ("data", "eval"): "--eval",
    ("data", "unlabelled"): "--unlabelled",
    TOKENIZER: "--tokenizer",
    TEACHERS: "--teacher",
}
# Settings that name a file or a directory, or else a model of the registry or the Hub.
REFERENCES = (
    TOKENIZER,
    TEACHERS,
    ("tokenizer",),
    ("init_from", "model"),
    ("init_from", "generator"),
    ("distillation", "generator"),
    ("distillation", "cache_teacher"),
)

# Settings of each of ``data.sources`` that name data -> their options.
SOURCES = ("data", "sources")
SOURCE_OPTIONS = {"paths": "--train", "eval_paths": "--eval"}
# Setting that names data -> the files and directories that it names.
Locations = dict[tuple[str, ...], list[str]]


def resume_command(command: str, path: Path) -> str:
    """Return the command line that resumes a run of a command, quoted for the shell."""
    return shlex.join(["zoo", command, "--resume", str(path)])


@contextlib.contextmanager
def resumed_by(command: str, path: Path, record: str) -> Iterator[None]:
    """Name the command that resumes all runs of a directory in errors of one of them.

    Args:
        command: the command.
        path: directory of the runs.
        record: name of the only file that is there before the first run.
    """
    try:
        yield
    except Interrupted as error:
        raise Interrupted(error.what, f"{command} resumes it") from error
    except UsageError as error:
        cause = error.__cause__
        no_run_began = os.listdir(path) == [record]
        if not isinstance(cause, OSError) or no_run_began:
            raise
        hint = f"{path} has what was complete; make room, and `{command}` resumes it"
        raise UsageError(error.what, hint) from cause


def require_new(path: Path, command: str) -> None:
    """Raise an error if the directory of a new run exists."""
    if path.exists():
        raise UsageError(f"{path} exists", f"`{resume_command(command, path)}`, or another -o")


@contextlib.contextmanager
def initial_directory(path: Path, directory: str) -> Iterator[Path]:
    """Work in the directory in which a run began, to which its relative paths refer.

    Args:
        path: directory of the run; the result is its path from the new working directory.
        directory: the recorded directory. The current one stays if it is empty, as in runs of
            earlier versions, or no longer exists.
    """
    if not directory or not Path(directory).is_dir() or Path(directory).samefile(Path.cwd()):
        yield path
        return
    path = path.absolute()
    with contextlib.chdir(directory):
        yield path


def with_absolute_paths(settings: Mapping[str, Any], directory: Path) -> ConfigDict:
    """Return settings with absolute paths in place of those relative to a directory."""
    changes = []
    for keys in dict.fromkeys((*_data_options(settings), *REFERENCES)):
        value = _get(settings, keys)
        if value:
            absolute = _make_absolute(value, directory, must_exist=keys in REFERENCES)
            changes.append(_nest(keys, absolute))
    return deep_merge(settings, *changes)


def without_locations(settings: Mapping[str, Any]) -> ConfigDict:
    """Return settings without the paths that name data, models and caches."""
    changes = []
    for keys in dict.fromkeys((*DATA_OPTIONS, *REFERENCES)):
        if _get(settings, keys) is not None:
            changes.append(_nest(keys, None))
    return deep_merge(settings, *changes)


def data_locations(settings: Mapping[str, Any]) -> Locations:
    """Return the settings that name data, with what they name."""
    locations: Locations = {}
    for keys in _data_options(settings):
        value = _get(settings, keys)
        if not value:
            continue
        if isinstance(value, str):
            value = [value]
        locations[keys] = list(value)
    return locations


def moved_locations(recorded: Mapping[str, Any], requested: Mapping[str, Any]) -> Locations:
    """Return the requested settings that name data elsewhere than a run has it, as absolute paths.

    Args:
        recorded: settings of the run.
        requested: settings that name data now.
    """
    recorded_locations = data_locations(recorded)
    requested_locations = data_locations(requested)
    absolute_locations = data_locations(with_absolute_paths(requested, Path.cwd()))
    moved = {}
    for keys, names in requested_locations.items():
        if recorded_locations.get(keys, names) != names:
            moved[keys] = absolute_locations[keys]
    # A tokenizer that is the teacher's moves with the teacher.
    if TEACHERS in moved and recorded_locations.get(TOKENIZER) == recorded_locations[TEACHERS][:1]:
        moved.setdefault(TOKENIZER, moved[TEACHERS][:1])
    return moved


def with_locations(settings: Mapping[str, Any], locations: Locations) -> ConfigDict:
    """Return settings with other names of data."""
    changes = []
    for keys, names in locations.items():
        if keys == TOKENIZER:
            changes.append(_nest(keys, names[0]))
        else:
            changes.append(_nest(keys, names))
    return deep_merge(settings, *changes)


def with_recorded_names(config: RunConfig, recorded: RunConfig) -> RunConfig:
    """Return a configuration with the names of data and teachers of another one."""
    changes: dict[str, Any] = {"data": recorded.data}
    if isinstance(config, DistillTextConfig | DistillTaskConfig):
        assert isinstance(recorded, DistillTextConfig | DistillTaskConfig), "of the same run"
        teachers = recorded.distillation.teachers
        changes["distillation"] = msgspec.structs.replace(config.distillation, teachers=teachers)
    return msgspec.structs.replace(config, **changes)


def missing_data(settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a file of the settings that does not exist, and its option."""
    for keys, paths in data_locations(settings).items():
        if keys in REFERENCES:
            continue
        for path in paths:
            _, file_name = split_name(path)
            is_pattern = any(character in path for character in "*?[")
            if is_remote(file_name):
                continue
            if not is_pattern and not Path(file_name).expanduser().exists():
                return path, _data_options(settings)[keys]
    return None


def _data_options(settings: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """Return the settings that may name data, those of sources included, with their options."""
    options = dict(DATA_OPTIONS)
    for name in _get(settings, SOURCES) or ():
        for setting, option in SOURCE_OPTIONS.items():
            options[*SOURCES, name, setting] = f"{option} {name}=PATH"
    return options


def _get(settings: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """Return the value at a path of keys; ``None`` if there is none."""
    value: Any = settings
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _nest(keys: tuple[str, ...], value: Any) -> ConfigDict:
    """Return settings that only have a value at a path of keys."""
    for key in reversed(keys):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def _make_absolute(value: Any, directory: Path, *, must_exist: bool) -> Any:
    """Return paths, or ``NAME=PATH``, with absolute paths.

    Args:
        value: a path, or a list of paths.
        directory: the directory that relative paths refer to.
        must_exist: keep what does not exist, as it is a name of the registry or the Hub.
    """
    if isinstance(value, list | tuple):
        return [_make_absolute(item, directory, must_exist=must_exist) for item in value]
    if not isinstance(value, str) or value.startswith("~") or is_remote(split_name(value)[1]):
        return value
    name = ""
    file = value
    if not (directory / value).exists():
        name, file = split_name(value)
    if must_exist and not (directory / file).exists():
        return value
    path = directory / file
    if name:
        return f"{name}={path}"
    return str(path)
