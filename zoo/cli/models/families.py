"""The command ``zoo families``."""

from typing import Any

import click

from zoo.cli.options import common_options
from zoo.cli.output import markdown, result, table

COLUMNS = ("family", "heads", "tasks", "pretraining", "sizes")


@click.command(epilog="Example: zoo families")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a table in Markdown.")
@common_options
def command(as_markdown: bool, as_json: bool) -> None:
    """List the model families with heads, tasks, pretraining objectives and sizes.

    The table shows what the installed plugins declare.
    """
    from zoo.plugins import all_families, warn_or_raise
    from zoo.plugins.attribution import provider_error

    families = {}
    for name, family in sorted(all_families().items()):
        try:
            families[name] = _capabilities(family)
        except Exception as error:  # an error of one plugin must not hide the others
            if (blamed := provider_error(family, error)) is None:
                raise
            warn_or_raise(blamed)
    rows = [
        (name, *(", ".join(item[column]) for column in COLUMNS[1:]))
        for name, item in families.items()
    ]
    lines = markdown(rows, COLUMNS) if as_markdown else table(rows, COLUMNS)
    result({"families": families}, lines, as_json=as_json)


def _capabilities(family: Any) -> dict[str, Any]:
    heads = family.heads()
    return {
        "heads": {name: head.summary for name, head in heads.items()},
        "tasks": sorted({task for head in heads.values() for task in head.tasks}),
        "pretraining": _objectives(family),
        "sizes": list(family.sizes()),
        "model_types": list(family.model_types),
        "default_checkpoint": family.default_checkpoint,
    }


def _objectives(family: Any) -> list[str]:
    """Return the pretraining objectives of the recipes of all sizes."""
    from zoo.errors import UsageError

    try:
        return sorted({family.recipe(size).objective for size in family.sizes()})
    except UsageError:  # it has no recipe
        return []
