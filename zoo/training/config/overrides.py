"""Nested settings as they come from files and options, before they are typed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from zoo.errors import SourceError, UsageError, VerificationError, did_you_mean
from zoo.io.yaml import parse_yaml, read_yaml

ConfigDict = dict[str, Any]


def deep_merge(*trees: Mapping[str, Any]) -> ConfigDict:
    """Return nested settings in which later ones take the place of earlier ones."""
    found: ConfigDict = {}
    for tree in trees:
        for key, value in tree.items():
            both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
            found[key] = deep_merge(found[key], value) if both else value
    return found


def parse_override(text: str) -> ConfigDict:
    """Read ``key=value`` of ``--set``: dots go into nested settings, values are YAML.

    Raises:
        UsageError: it is not of that form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(
            f"--set {text!r} is not key=value", "such as --set optimizer.max_grad_norm=0.5"
        )
    try:
        found = parse_yaml(value, f"--set {key}")
    except VerificationError as error:
        raise UsageError(f"--set {text[:200]!r}: the value is not YAML") from error
    for part in reversed(key.split(".")):
        found = {part: found}
    return found  # type: ignore[no-any-return]


def read_config_file(path: Path) -> ConfigDict:
    """Read a file of settings.

    Raises:
        UsageError: it cannot be read, or is no YAML mapping.
    """
    try:
        found = read_yaml(path)
    except (SourceError, VerificationError) as error:
        raise UsageError(error.what, error.hint) from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} is not a table of settings", "name one as `family`")
    return found


def check_keys(values: ConfigDict, struct_type: Any, path: str, source: str) -> None:
    """Refuse a key that a kind of settings does not have, at any depth.

    Args:
        tree: nested settings.
        kind: the ``msgspec.Struct`` that they are to be.
        path: of the tree in all settings, with a dot at its end.
        where: they come from.

    Raises:
        UsageError: names the nearest.
    """
    fields = {field.name: field.type for field in msgspec.structs.fields(struct_type)}
    for key, value in values.items():
        if key not in fields:
            raise UsageError(
                f"{source}: there is no setting {path}{key}",
                did_you_mean(str(key), list(fields)) or f"there are {', '.join(fields)}",
            )
        for inner in (fields[key], *get_args(fields[key])):  # of what may be None, too
            nested = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
            if nested and isinstance(value, dict):
                check_keys(value, inner, f"{path}{key}.", source)


def config_diff(one: ConfigDict, other: ConfigDict, path: str = "") -> Iterator[str]:
    """Name the settings that differ: ``optimizer.max_grad_norm: 1.0 and 0.5``."""
    for key in sorted({*one, *other}):
        a, b = one.get(key), other.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from config_diff(a, b, f"{path}{key}.")
        elif a != b:
            yield f"{path}{key}: {a!r} and {b!r}"
