"""The registry of published checkpoints: name -> Hub repository, family and other facts."""

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
# Text of messages and tables: short, without control characters.
Text = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
Language = Annotated[str, msgspec.Meta(pattern=r"^([a-z]{2,3}(-[A-Za-z0-9]{2,8})*|multilingual)$")]
Url = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^https?://[^\s\x00-\x1f\x7f-\x9f]+$")]


class RerankerEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How a language model scores a pair, where its repository only has the language model."""

    true_token_id: int  # the token whose logit scores a pair, such as that of ``yes``
    # the token whose logit is subtracted; ``None`` for none
    false_token_id: int | None = None
    chat_template: str  # the text of a pair, in Jinja, from messages of the roles of a pair


class RegistryEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Registry entry of a published checkpoint. Omitted fields are read from its files."""

    family: Text
    # Hub repository, ``organisation/name``; entries without one have ``page``
    repo: Text | None = None
    page: Text | None = None  # download page of a checkpoint that is not on the Hub
    files: tuple[Text, ...] = ()  # names of files that a conversion needs at least
    head: Text | None = None  # name of the head of the published weights
    # number of parameters of backbone and head, tied ones counted once
    parameters: int | None = None
    size: Text | None = None  # name of the family's size that the configuration is based on
    config: dict[str, Any] = {}  # fields of the configuration that differ from ``size``
    revision: Text = "main"  # branch, tag or commit to read
    licence: Text | None = None  # licence that the publishers state
    licence_source: Url | None = None  # page on which the licence was read
    # languages of its texts: ISO 639 codes, or ``multilingual``
    languages: tuple[Language, ...] = ()
    citation: Text | None = None  # paper to cite
    # how the model scores pairs, in place of the files of sentence-transformers that it lacks
    reranker: RerankerEntry | None = None
    # whether the entry could not be compared with the page of its publisher
    unchecked: bool = False


def read_registry(path: Path) -> dict[str, RegistryEntry]:
    """Decode one registry file.

    Raises:
        VerificationError: the file is not YAML, or has an unknown key or a value of the wrong
            type; the message names file, entry and field.
        UsageError: the file cannot be read.
    """
    # Entries come from the packaged ``registry.yaml``, from ``$ZOO_HOME/registry.yaml``, and from
    # files of plugins. Unknown keys are errors.
    try:
        raw = read_yaml(path)
    except SourceError as error:
        raise UsageError(error.what) from error
    if not isinstance(raw, dict | None):
        raise VerificationError(f"{path}: not a map of names to checkpoints")
    rows = {}
    for name, entry in (raw or {}).items():
        try:
            text = msgspec.convert(str(name), Text)
        except msgspec.ValidationError as error:
            shown = f"{str(name)[:100]!r}"
            raise VerificationError(f"{path}: {shown} cannot be a name: {error}") from error
        try:
            row = msgspec.convert(entry, RegistryEntry)
        except msgspec.ValidationError as error:
            reason, _, origin = str(error).partition(" - at ")
            field = origin.strip("`").removeprefix("$").removeprefix(".")
            raise VerificationError(
                f"{path}: {text}: {field}{': ' if field else ''}{reason}"
            ) from error
        if row.licence is None and row.licence_source is not None:
            raise VerificationError(f"{path}: {text}: licence_source is the page of no licence")
        if (row.repo is None) == (row.page is None):
            raise VerificationError(
                f"{path}: {text}: give repo or, for what is not on the Hub, page"
            )
        rows[text] = row
    return rows


@functools.cache
def builtin() -> Mapping[str, RegistryEntry]:
    """Return the entries of the package."""
    with resources.as_file(resources.files("zoo") / FILE) as path:
        return read_registry(path)


def user_entries() -> Mapping[str, RegistryEntry]:
    """Return the entries of the user's registry, ``$ZOO_HOME/registry.yaml``."""
    path = home() / FILE
    return read_registry(path) if os.path.lexists(path) else {}


def entries(*, plugins: bool = True) -> dict[str, RegistryEntry]:
    """Return all entries by name."""
    # A plugin whose file cannot be read, or has a name that is taken, is reported as broken; see
    # ``zoo.plugins.warn_or_raise``
    known: dict[str, tuple[str, RegistryEntry]] = {}
    _add(known, "the built-in registry", builtin())
    _add(known, str(home() / FILE), user_entries())
    if plugins:
        from zoo.plugins import broken, registry_files, warn_or_raise

        for plugin, path in registry_files():
            try:
                _add(known, str(path), read_registry(path))
            except ZooError as error:
                warn_or_raise(broken(plugin, error.what))
    return {name: row for name, (_, row) in known.items()}


def _add(
    known: dict[str, tuple[str, RegistryEntry]], origin: str, new: Mapping[str, RegistryEntry]
) -> None:
    for name in new:
        if name in known:
            raise VerificationError(
                f"{origin}: {name} is already in {known[name][0]}", "give it another name"
            )
    known.update({name: (origin, row) for name, row in new.items()})


def line_of(name: str) -> str:
    """Return the name of an entry for messages, with the path of the user's registry."""
    return f"{home() / FILE}: {name}" if name in user_entries() else name


def entry_config(name: str, row: RegistryEntry) -> Config:
    """Return the configuration of an entry with a size."""
    from zoo.plugins import get_family

    place = line_of(name)
    family = get_family(row.family, place)
    sizes = family.sizes()
    assert row.size is not None, "the entry has a size"
    if row.size not in sizes:
        hint = did_you_mean(row.size, list(sizes)) or f"it has {', '.join(sizes)}"
        raise VerificationError(f"{place}: {row.family} has no size {row.size!r}", hint)
    values = msgspec.to_builtins(sizes[row.size]) | row.config
    try:
        return msgspec.convert(values, family.config_type)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{place}: config: {error}") from error
