"""The registry: which published checkpoint has which name, and where it lives.

Rows come from the packaged ``registry.yaml``, from ``$ZOO_HOME/registry.yaml``, and from the
files that plugins return. All are decoded strictly.
"""

import functools
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec

from zoo.errors import SourceError, UsageError, VerificationError, ZooError, did_you_mean
from zoo.families.config import Config
from zoo.io.paths import home
from zoo.io.yaml import read_yaml

FILE = "registry.yaml"
# What is shown in messages and tables: a line of a terminal or a few, without control characters.
Text = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]


class RegistryEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One published checkpoint. What is left out is found in its files.

    Attributes:
        family: the family that reads it.
        repo: the Hub repository, ``organisation/name``; without one, ``page`` is given.
        page: where its authors offer what they never put on the Hub.
        files: what a conversion reads of it, at least.
        head: the head that its weights fill.
        parameters: how many parameters trunk and head have, tied ones counted once.
        size: the family's named configuration that it equals, or starts from.
        config: fields of the configuration that differ from it, by our names.
        revision: branch, tag or commit to read.
        licence: as the publishers state it.
        citation: the paper.
    """

    family: Text
    repo: Text | None = None
    page: Text | None = None
    files: tuple[Text, ...] = ()
    head: Text | None = None
    parameters: int | None = None
    size: Text | None = None
    config: dict[str, Any] = {}
    revision: Text = "main"
    licence: Text | None = None
    citation: Text | None = None


def read_registry(path: Path) -> dict[str, RegistryEntry]:
    """Decode one registry file.

    Raises:
        VerificationError: it is not YAML, or names an unknown key or a value of the wrong
            type; the message gives file, entry and field.
        UsageError: it cannot be read.
    """
    try:
        raw = read_yaml(path)
    except SourceError as error:
        raise UsageError(error.what) from error
    if not isinstance(raw, dict | None):
        raise VerificationError(f"{path}: not a map of names to checkpoints")
    return {_name(path, name): _row(path, str(name), entry) for name, entry in (raw or {}).items()}


def _name(path: Path, name: Any) -> str:
    try:
        return msgspec.convert(str(name), Text)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{path}: {str(name)[:100]!r} cannot be a name: {error}") from error


def _row(path: Path, name: str, entry: Any) -> RegistryEntry:
    try:
        row = msgspec.convert(entry, RegistryEntry)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$").removeprefix(".")
        raise VerificationError(
            f"{path}: {name}: {field}{': ' if field else ''}{reason}"
        ) from error
    if (row.repo is None) == (row.page is None):
        raise VerificationError(f"{path}: {name}: give repo or, for what is not on the Hub, page")
    return row


@functools.cache
def builtin() -> Mapping[str, RegistryEntry]:
    """Return the rows that ship with the package."""
    with resources.as_file(resources.files("zoo") / FILE) as path:
        return read_registry(path)


def own_entries() -> Mapping[str, RegistryEntry]:
    """Return the rows of the user's registry, ``$ZOO_HOME/registry.yaml``."""
    path = home() / FILE
    return read_registry(path) if os.path.lexists(path) else {}


def entries(*, plugins: bool = True) -> dict[str, RegistryEntry]:
    """Return all rows by name.

    A plugin's file that cannot be read, or gives a name that is taken, makes that plugin a broken
    one; see ``zoo.plugins.warn_or_raise``.

    Args:
        plugins: whether to ask the plugins too, which imports them.

    Raises:
        VerificationError: the user's registry is none, or gives a name that is taken.
    """
    found: dict[str, tuple[str, RegistryEntry]] = {}
    _add(found, "the built-in registry", builtin())
    _add(found, str(home() / FILE), own_entries())
    if plugins:
        from zoo.plugins import broken, registry_files, warn_or_raise

        for plugin, path in registry_files():
            try:
                _add(found, str(path), read_registry(path))
            except ZooError as error:
                warn_or_raise(broken(plugin, error.what))
    return {name: row for name, (_, row) in found.items()}


def _add(
    found: dict[str, tuple[str, RegistryEntry]], where: str, more: Mapping[str, RegistryEntry]
) -> None:
    for name in more:
        if name in found:
            raise VerificationError(
                f"{where}: {name} is already in {found[name][0]}", "give it another name"
            )
    found.update({name: (where, row) for name, row in more.items()})


def line_of(name: str) -> str:
    """Return a row's name for messages, behind its file if that is the user's."""
    return f"{home() / FILE}: {name}" if name in own_entries() else name


def entry_config(name: str, row: RegistryEntry) -> Config:
    """Return the configuration that a row with a size describes.

    Raises:
        VerificationError: the family has no such size or field.
        UsageError, PluginError: the family is not installed, or broken.
    """
    from zoo.plugins import get_family

    place = line_of(name)
    family = get_family(row.family, place)
    sizes = family.sizes()
    assert row.size is not None, "the row says a size"
    if row.size not in sizes:
        hint = did_you_mean(row.size, list(sizes)) or f"it has {', '.join(sizes)}"
        raise VerificationError(f"{place}: {row.family} has no size {row.size!r}", hint)
    values = msgspec.to_builtins(sizes[row.size]) | row.config
    try:
        return msgspec.convert(values, family.config_type)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{place}: config: {error}") from error
