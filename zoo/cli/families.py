"""``zoo families``."""

import click

from zoo.cli.options import json_option
from zoo.cli.output import result, table


@click.command(epilog="Example: zoo families")
@json_option
def command(as_json: bool) -> None:
    """List the model families: heads, sizes, and the tasks they serve."""
    from zoo.plugins import all_families

    families = {
        name: {
            "heads": {head: item.summary for head, item in family.heads().items()},
            "sizes": list(family.sizes()),
            "tasks": sorted({task for head in family.heads().values() for task in head.tasks}),
            "model_types": list(family.model_types),
            "default_checkpoint": family.default_checkpoint,
        }
        for name, family in sorted(all_families().items())
    }
    rows = [
        (name, *(", ".join(item[key]) for key in ("heads", "tasks", "sizes")))
        for name, item in families.items()
    ]
    result(
        {"families": families}, table(rows, ("family", "heads", "tasks", "sizes")), as_json=as_json
    )
