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
        get_family(family)  # an error suggests similar names
    known = registry.entries()
    stored = stored_names()
    own = {name: _stored_entry(store() / name) for name in stored if name not in known}
    rows = {}
    for name, row in sorted({**known, **own}.items()):
        values = (name, row.family, row.head, _licence(row), row.repo, row.page)
        text = " ".join(filter(None, values)).lower()
        if family in (None, row.family) and all(word.lower() in text for word in words):
            rows[name] = row
    value = {
        "registry": {name: msgspec.to_builtins(row) for name, row in rows.items() if name in known},
        "stored": [name for name in stored if name in rows],
    }
    lines = [
        (
            name,
            row.family,
            row.head or "",
            "" if row.parameters is None else format_count(row.parameters),
            format_bytes(directory_bytes(store() / name)) if name in stored else "",
            _licence(row),
            (row.repo or row.page or "") + (f"@{row.revision}" if row.revision != "main" else ""),
        )
        for name, row in rows.items()
    ]
    shown = table(lines, HEADER, drops=("repository", "head")) if lines else ["no model matches"]
    result(value, shown, as_json=as_json)
    if lines and not as_json:
        hint("`zoo info MODEL` describes one, `zoo convert MODEL` puts it into the store")


def _stored_entry(path: Path) -> "RegistryEntry":
    """Return an entry for a model of the store that the registry does not have."""
    from zoo.checkpoint import load_checkpoint
    from zoo.errors import ZooError
    from zoo.hub.registry import RegistryEntry

    try:
        checkpoint = load_checkpoint(path)
    except ZooError:  # a damaged model is also listed; `zoo verify` says what is wrong with it
        return RegistryEntry(family="")
    return RegistryEntry(
        family=checkpoint.family.name,
        head=checkpoint.head_name,
        parameters=checkpoint.weights.parameters(),
    )


def _licence(row: "RegistryEntry") -> str:
    """Return the licence, and whether the entry was not compared with its publisher's page."""
    return ", ".join(filter(None, (row.licence, "unchecked" if row.unchecked else None)))
