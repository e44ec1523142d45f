"""The command ``zoo models``."""

import click
import msgspec

from zoo.cli.options import common_options
from zoo.cli.output import result, table


@click.command(epilog="Example: zoo models --json")
@common_options
def command(as_json: bool) -> None:
    """List the checkpoints of the registry and the store."""
    from zoo.hub import registry
    from zoo.hub.reference import stored_names

    stored = stored_names()
    rows = registry.entries()
    value = {
        "registry": {name: msgspec.to_builtins(row) for name, row in rows.items()},
        "stored": stored,
    }
    lines = [
        (
            name,
            row.family,
            row.head or "",
            "" if row.parameters is None else f"{row.parameters:,}",
            "stored" if name in stored else "",
            row.repo or row.page or "",
        )
        for name, row in sorted(rows.items())
    ]
    lines += [(name, "", "", "", "stored", "") for name in stored if name not in rows]
    header = ("model", "family", "head", "parameters", "here", "repository")
    result(value, table(lines, header), as_json=as_json)
