"""Nested settings of files and options: merging, parsing and comparing, before validation."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.paths import check_unicode
from zoo.io.yaml import parse_yaml, read_yaml
from zoo.objectives.options import check_choice
from zoo.training.config.synonyms import ALTERNATIVES, suggest_setting

ConfigDict = dict[str, Any]
TABLES = ("adapter", "config", "data", "distillation", "init_from", "lr_scheduler", "optimizer")
NAMES = ("family", "preset", "task")
MISSING = "Object missing required field "


def deep_merge(*trees: Mapping[str, Any]) -> ConfigDict:
    """Merge nested settings into new dictionaries; a later value overrides an earlier one."""
    merged: ConfigDict = {}
    for tree in trees:
        for key, value in tree.items():
            if not isinstance(value, Mapping):
                merged[key] = value
                continue
            earlier_value = merged.get(key)
            if isinstance(earlier_value, Mapping):
                merged[key] = deep_merge(earlier_value, value)
            else:
                merged[key] = deep_merge(value)
    return merged


def merge_settings(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> ConfigDict:
    """Merge settings, where an override also replaces what sets the same thing otherwise."""
    replaced_names = set()
    for name, alternative in ALTERNATIVES.items():
        if name in overrides and alternative not in overrides:
            replaced_names.add(alternative)
        # `num_train_epochs` next to `max_steps` has no effect, and stays in the record.
        if alternative in overrides and name not in overrides and name != "num_train_epochs":
            replaced_names.add(name)
    remaining_values = {name: value for name, value in values.items() if name not in replaced_names}
    return deep_merge(remaining_values, overrides)


def parse_override(text: str) -> ConfigDict:
    """Parse ``key=value`` of ``--set``: dots separate nested keys, and the value is YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(
            f"--set {text!r} is not key=value", "such as --set optimizer.max_grad_norm=0.5"
        )
    try:
        override = parse_yaml(value, f"--set {key}")
    except VerificationError as error:
        raise UsageError(f"--set {text[:200]!r}: the value is not YAML") from error
    for part in reversed(key.split(".")):
        override = {part: override}
    return override  # type: ignore[no-any-return]


def read_config_file(path: Path) -> ConfigDict:
    """Read a configuration file."""
    try:
        values = read_yaml(path)
    except (SourceError, VerificationError) as error:
        raise UsageError(error.what, error.hint) from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} is not a table of settings", "name one as `family`")
    return values


def check_tables(*trees: Mapping[str, Any]) -> None:
    """Check tables, names and texts that are read before the settings are validated."""
    for settings in trees:
        for key, value in settings.items():
            if value is None and key != "family":
                continue
            if key in TABLES and not isinstance(value, Mapping):
                raise UsageError(f"{key} is {value!r:.100}, not a table of settings")
            if key in NAMES and not isinstance(value, str):
                raise UsageError(f"{key} is {value!r:.100}, not a name")
            for text in _texts(value):
                check_unicode(text, key)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of nested settings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def check_keys(
    values: ConfigDict, struct_type: Any, path: str, source: str, root: Any = None
) -> None:
    """Check that a struct has all keys of nested settings, at any depth.

    Args:
        values: the settings.
        struct_type: type of the struct.
        path: keys above the settings, each followed by a dot.
        source: name of the settings in messages.
        root: struct of all settings; ``None`` if it is this one.
    """
    root = root or struct_type
    field_types = {field.name: field.type for field in msgspec.structs.fields(struct_type)}
    for key, value in values.items():
        if key not in field_types:
            suggestion = suggest_setting(str(key), struct_type, path, root)
            raise UsageError(
                f"{source}: there is no setting {path}{key}",
                suggestion or f"there are {', '.join(field_types)}",
            )
        check_choice(value, field_types[key], f"{source}: {path}{key}")
        for inner_type, inner_values, location in _nested(field_types[key], value, f"{path}{key}"):
            check_keys(inner_values, inner_type, f"{location}.", source, root)


def wrong_entry(values: ConfigDict, struct_type: Any, path: str = "") -> str | None:
    """Return the name and the error of a wrong entry of a mapping, such as loss terms."""
    # The errors of msgspec have ``[...]`` in the place of such names.
    for field in msgspec.structs.fields(struct_type):
        value = values.get(field.name)
        if not isinstance(value, dict):
            continue
        location = f"{path}{field.name}."
        if get_origin(field.type) is dict:
            _, entry_type = get_args(field.type)
            for name, entry in value.items():
                try:
                    msgspec.convert(entry, entry_type)
                except (msgspec.ValidationError, ValueError, TypeError) as error:
                    return with_location(error, f"{location}{name}")
        elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            message = wrong_entry(value, field.type, location)
            if message is not None:
                return message
    return None


def with_location(error: Exception, path: str) -> str:
    """Return an error of msgspec as text that begins with its location."""
    message, _, location = str(error).partition(" - at `$")
    name = f"{path}{location.rstrip('`')}".lstrip(".")
    if message.startswith(MISSING):
        return f"{name or 'it'} has no {message.removeprefix(MISSING).strip('`')}"
    return f"{name}: {message}" if name else message


def _nested(field_type: Any, value: Any, path: str) -> Iterator[tuple[Any, ConfigDict, str]]:
    """Yield type, settings and path of each struct in a field, also in a union or a mapping."""
    if isinstance(field_type, type) and issubclass(field_type, msgspec.Struct):
        if isinstance(value, dict):
            yield field_type, value, path
    elif get_origin(field_type) is dict:
        _, entry_type = get_args(field_type)
        if isinstance(value, dict):
            for name, entry in value.items():
                yield from _nested(entry_type, entry, f"{path}.{name}")
    else:
        for member_type in get_args(field_type):
            yield from _nested(member_type, value, path)


def config_diff(
    first: ConfigDict, second: ConfigDict, path: str = "", *, absent: str = "None"
) -> Iterator[str]:
    """Yield a line per setting that differs: ``optimizer.max_grad_norm: 1.0 and 0.5``.

    Args:
        first: settings.
        second: other settings.
        path: path of keys to both.
        absent: what is shown for a setting that is not there.
    """
    for key in sorted({*first, *second}):
        first_value = first.get(key)
        second_value = second.get(key)
        if first_value == second_value:
            continue
        if isinstance(first_value, dict | None) and isinstance(second_value, dict | None):
            tables = (first_value or {}, second_value or {})
            yield from config_diff(*tables, f"{path}{key}.", absent=absent)
            continue
        first_text = repr(first_value) if key in first else absent
        second_text = repr(second_value) if key in second else absent
        yield f"{path}{key}: {first_text} and {second_text}"
