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
from zoo.training.config.distill import DistillTaskConfig, DistillTextConfig
from zoo.training.config.overrides import ConfigDict, deep_merge
from zoo.training.config.run_config import RunConfig

# settings that name data -> their options; files with the same contents may take its place
TEACHERS = ("distillation", "teachers")
TOKENIZER = ("data", "tokenizer")
DATA = {
    ("data", "paths"): "--train",
    ("data", "eval_paths"): "--eval",
    ("data", "train"): "--train",
    ("data", "eval"): "--eval",
    ("data", "unlabelled"): "--unlabelled",
    TOKENIZER: "--tokenizer",
    TEACHERS: "--teacher",
}
# further settings that may name a file or directory, or something else
REFERENCES = (
    TOKENIZER,
    TEACHERS,
    ("tokenizer",),
    ("init_from", "model"),
    ("init_from", "generator"),
    ("distillation", "generator"),
    ("distillation", "cache_teacher"),
)


Locations = dict[tuple[str, str], list[str]]


def resume_command(kind: str, path: Path) -> str:
    """Return the command that resumes a run, quoted for the shell."""
    return shlex.join(["zoo", kind, "--resume", str(path)])


@contextlib.contextmanager
def resumed_by(command: str, path: Path, record: str) -> Iterator[None]:
    """Name the command that resumes all runs of a directory in errors of one of them.

    Args:
        command: the command.
        path: directory of the runs.
        record: name of its file that is there before the first run.
    """
    try:
        yield
    except Interrupted as error:
        raise Interrupted(error.what, f"{command} resumes it") from error
    except UsageError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or os.listdir(path) == [record]:
            raise
        hint = f"{path} has what was complete; make room, and `{command}` resumes it"
        raise UsageError(error.what, hint) from cause


def require_new(path: Path, kind: str) -> None:
    """Raise an error if the directory of a new run exists."""
    if path.exists():
        raise UsageError(f"{path} exists", f"`{resume_command(kind, path)}`, or another -o")


@contextlib.contextmanager
def where_it_began(path: Path, directory: str) -> Iterator[Path]:
    """Work in the directory in which a run began, so that its relative paths have their meaning."""
    # The current directory stays if the recorded one is empty, as in runs of earlier versions, or
    # no longer exists.
    if not directory or not Path(directory).is_dir() or Path(directory).samefile(Path.cwd()):
        yield path
        return
    path = path.absolute()
    with contextlib.chdir(directory):
        yield path


def with_absolute_paths(settings: Mapping[str, Any], directory: Path) -> ConfigDict:
    """Return settings with absolute paths in place of those relative to a directory."""
    changes = [
        _nested(keys, _absolute(value, directory, must_exist=keys in REFERENCES))
        for keys in dict.fromkeys((*DATA, *REFERENCES))
        if (value := _value(settings, keys))
    ]
    return deep_merge(settings, *changes)


def data_locations(settings: Mapping[str, Any]) -> Locations:
    """Return the settings that name data, by their path."""
    values = ((keys, _value(settings, keys)) for keys in DATA)
    return {k: [v] if isinstance(v, str) else list(v) for k, v in values if v}


def moved_locations(recorded: Mapping[str, Any], given: Mapping[str, Any]) -> Locations:
    """Return the settings that name data elsewhere than a run has it, as absolute paths."""
    # A tokenizer that is the teacher's moves with the teacher.
    before = data_locations(recorded)
    named = data_locations(given)
    now = data_locations(with_absolute_paths(given, Path.cwd()))
    moved = {keys: now[keys] for keys in now if before.get(keys, named[keys]) != named[keys]}
    if TEACHERS in moved and before.get(TOKENIZER) == before[TEACHERS][:1]:
        moved.setdefault(TOKENIZER, moved[TEACHERS][:1])
    return moved


def with_locations(settings: Mapping[str, Any], locations: Locations) -> ConfigDict:
    """Return settings with other names of data."""
    changes = (
        _nested(keys, names[0] if keys == TOKENIZER else names) for keys, names in locations.items()
    )
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
        for path in paths:
            file = Path(split_name(path)[1]).expanduser()
            if keys not in REFERENCES and not (file.exists() or set(path) & set("*?[")):
                return path, DATA[keys]
    return None


def _value(settings: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    value: Any = settings
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _nested(keys: tuple[str, ...], value: Any) -> ConfigDict:
    for key in reversed(keys):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def _absolute(value: Any, directory: Path, *, must_exist: bool) -> Any:
    if isinstance(value, list | tuple):
        return [_absolute(item, directory, must_exist=must_exist) for item in value]
    if not isinstance(value, str) or value.startswith("~"):
        return value
    name, file = ("", value) if (directory / value).exists() else split_name(value)
    if must_exist and not (directory / file).exists():  # a name of the registry or the Hub
        return value
    return f"{name}={directory / file}" if name else str(directory / file)
