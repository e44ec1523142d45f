"""The command ``zoo models``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from zoo.cli.completion import FAMILY
from zoo.cli.options import common_options
from zoo.cli.output import hint, result, table
from zoo.io.numbers import format_bytes, format_count

if TYPE_CHECKING:
    from zoo.hub.registry import RegistryEntry

HEADER = ("model", "family", "head", "parameters", "on disk", "licence", "repository")


@click.command(
    epilog="""\b
Examples:
  zoo models
  zoo models multilingual
  zoo models squad --family FAMILY
  zoo models --json"""
)
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--family", type=FAMILY, metavar="F", help="List the checkpoints of one family.")
@common_options
def command(words: tuple[str, ...], family: str | None, as_json: bool) -> None:
    """List the checkpoints of the registry and the store.

    WORDs are searched for in names, families, heads, licences and repositories; all must occur. A
    model that is in the store has its size on disk. An entry that could not be compared with its
    publisher's page is unchecked; `zoo info MODEL` has the page on which its licence was read.
    """
    from zoo.hub import registry
    from zoo.hub.reference import stored_names
    from zoo.io.paths import directory_bytes, store
    from zoo.plugins import get_family

    if family is not None:
        get_family(family)  # An error suggests similar names.
    registry_entries = registry.entries()
    names_in_store = stored_names()
    all_entries = dict(registry_entries)
    for name in names_in_store:
        if name not in registry_entries:
            all_entries[name] = _stored_entry(store() / name)
    entries = {}
    for name, entry in sorted(all_entries.items()):
        values = (name, entry.family, entry.head, _licence(entry), entry.repo, entry.page)
        text = " ".join(filter(None, values)).lower()
        if family in (None, entry.family) and all(word.lower() in text for word in words):
            entries[name] = entry
    registry_values = {}
    rows = []
    for name, entry in entries.items():
        if name in registry_entries:
            registry_values[name] = msgspec.to_builtins(entry)
        size = ""
        if name in names_in_store:
            size = format_bytes(directory_bytes(store() / name))
        rows.append(_row(name, entry, size))
    value = {
        "registry": registry_values,
        "stored": [name for name in names_in_store if name in entries],
    }
    lines = ["no model matches"]
    if rows:
        lines = table(rows, HEADER, drops=("repository", "head"))
    result(value, lines, as_json=as_json)
    if rows and not as_json:
        hint("`zoo info MODEL` describes one, `zoo convert MODEL` puts it into the store")


def _row(name: str, entry: "RegistryEntry", size: str) -> list[str]:
    """Return the cells of a model, in the order of ``HEADER``."""
    source = entry.repo or entry.page or ""
    if entry.revision != "main":
        source += f"@{entry.revision}"
    parameters = "" if entry.parameters is None else format_count(entry.parameters)
    return [name, entry.family, entry.head or "", parameters, size, _licence(entry), source]


def _stored_entry(path: Path) -> "RegistryEntry":
    """Return an entry for a model of the store that the registry does not have."""
    from zoo.checkpoint import load_checkpoint
    from zoo.errors import ZooError
    from zoo.hub.registry import RegistryEntry

    try:
        checkpoint = load_checkpoint(path)
    except ZooError:  # A damaged model is also listed; `zoo verify` says what is wrong with it.
        return RegistryEntry(family="")
    return RegistryEntry(
        family=checkpoint.family.name,
        head=checkpoint.head_name,
        parameters=checkpoint.weights.parameters(),
    )


def _licence(entry: "RegistryEntry") -> str:
    """Return the licence, and whether the entry was not compared with its publisher's page."""
    parts = []
    if entry.licence:
        parts.append(entry.licence)
    if entry.unchecked:
        parts.append("unchecked")
    return ", ".join(parts)
