"""The command ``zoo plugins search``."""

import click

from zoo.cli.options import common_options
from zoo.cli.output import result, table

COLUMNS = ("plugin", "model types", "summary", "source")


@click.command(
    epilog="""\b
Examples:
  zoo plugins search
  zoo plugins search rembert"""
)
@click.argument("word", metavar="[WORD]", default="")
@common_options
def command(word: str, as_json: bool) -> None:
    """Search the directory of known plugins for WORD; without it, list all.

    WORD is a part of a name, of a model_type, or of a summary. The directory comes with zoo; no
    connection is opened.
    """
    from zoo.errors import UsageError
    from zoo.plugins.directory import search

    found = search(word)
    if not found:
        raise UsageError(
            f"no plugin of the directory matches {word!r}",
            "`zoo plugins search` lists all, and `zoo plugins new` writes one",
        )
    plugins = [
        {
            "name": name,
            "distribution": plugin.distribution,
            "model_types": list(plugin.model_types),
            "summary": plugin.summary,
            "source": plugin.source,
            "install": plugin.install_command,
        }
        for name, plugin in found.items()
    ]
    rows = [(n, ", ".join(p.model_types), p.summary, p.source) for n, p in found.items()]
    lines = table(rows, COLUMNS, wraps=("summary",))
    lines += ["", *(f"{name}: {plugin.remedy}" for name, plugin in found.items())]
    result({"plugins": plugins}, lines, as_json=as_json)
