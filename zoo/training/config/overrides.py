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
            if isinstance(value, Mapping):
                before = merged.get(key)
                value = deep_merge(before if isinstance(before, Mapping) else {}, value)
            merged[key] = value
    return merged


def merge_settings(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> ConfigDict:
    """Merge settings, where an override also replaces what sets the same thing otherwise."""
    replaced = {
        other
        for pair in ALTERNATIVES.items()
        for name, other in (pair, pair[::-1])
        # `num_train_epochs` next to `max_steps` has no effect, and stays in the record
        if name in overrides and other not in overrides and other != "num_train_epochs"
    }
    kept = {name: value for name, value in values.items() if name not in replaced}
    return deep_merge(kept, overrides)


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


def check_kinds(*trees: Mapping[str, Any]) -> None:
    """Check what is read of nested settings before they are validated."""
    for settings in trees:
        for key, value in settings.items():
            if key in TABLES and not (value is None or isinstance(value, Mapping)):
                raise UsageError(f"{key} is {value!r:.100}, not a table of settings")
            if key in NAMES and not (isinstance(value, str) or (value is None and key != "family")):
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
    """Check that a struct has all keys of nested settings, at any depth."""
    # root: struct of all settings; ``None`` if it is this one
    root = root or struct_type
    fields = {field.name: field.type for field in msgspec.structs.fields(struct_type)}
    for key, value in values.items():
        if key not in fields:
            raise UsageError(
                f"{source}: there is no setting {path}{key}",
                suggest_setting(str(key), struct_type, path, root)
                or f"there are {', '.join(fields)}",
            )
        check_choice(value, fields[key], f"{source}: {path}{key}")
        for inner, item, place in _nested(fields[key], value, f"{path}{key}"):
            check_keys(item, inner, f"{place}.", source, root)


def wrong_entry(values: ConfigDict, struct_type: Any, path: str = "") -> str | None:
    """Return the name and the error of a wrong entry of a mapping, such as loss terms."""
    # The errors of msgspec have ``[...]`` in the place of such names.
    for field in msgspec.structs.fields(struct_type):
        value = values.get(field.name)
        kinds = get_args(field.type)
        if not isinstance(value, dict):
            continue
        place = f"{path}{field.name}."
        if get_origin(field.type) is dict:
            for name, entry in value.items():
                try:
                    msgspec.convert(entry, kinds[1])
                except (msgspec.ValidationError, ValueError, TypeError) as error:
                    return with_location(error, f"{place}{name}")
        elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            inner = wrong_entry(value, field.type, place)
            if inner is not None:
                return inner
    return None


def with_location(error: Exception, path: str) -> str:
    """Return an error of msgspec as text that begins with its location."""
    message, _, place = str(error).partition(" - at `$")
    name = f"{path}{place.rstrip('`')}".lstrip(".")
    if message.startswith(MISSING):
        return f"{name or 'it'} has no {message.removeprefix(MISSING).strip('`')}"
    return f"{name}: {message}" if name else message


def _nested(field_type: Any, value: Any, path: str) -> Iterator[tuple[Any, ConfigDict, str]]:
    """Yield type, settings and path of each struct in a field, also in a union or a mapping."""
    if isinstance(field_type, type) and issubclass(field_type, msgspec.Struct):
        if isinstance(value, dict):
            yield field_type, value, path
    elif get_origin(field_type) is dict:
        for name, item in value.items() if isinstance(value, dict) else ():
            yield from _nested(get_args(field_type)[1], item, f"{path}.{name}")
    else:
        for inner in get_args(field_type):
            yield from _nested(inner, value, path)


def config_diff(first: ConfigDict, second: ConfigDict, path: str = "") -> Iterator[str]:
    """Yield a line per setting that differs: ``optimizer.max_grad_norm: 1.0 and 0.5``."""
    for key in sorted({*first, *second}):
        a = first.get(key)
        b = second.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from config_diff(a, b, f"{path}{key}.")
        elif a != b:
            yield f"{path}{key}: {a!r} and {b!r}"
