"""``zoo plugins``."""

import click

from zoo.cli.options import json_option
from zoo.cli.output import fail, result, table


@click.command(epilog="Example: ZOO_PLUGINS=mine zoo plugins")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the plugins: name, distribution, version, hooks, health.

    $ZOO_PLUGINS=a,b restricts what is loaded; ZOO_STRICT_PLUGINS=1 makes a broken plugin an
    error in every command. Where several have one name, no command knows which is meant: exits
    with 5.
    """
    from zoo.errors import PluginError
    from zoo.plugins import claimed, hooks_of, installed

    found = []
    for plugin in (plugin for rivals in claimed().values() for plugin in rivals):
        try:
            hooks, health = hooks_of(plugin.name), "ok"
        except PluginError as error:
            hooks, health = [], str(error)
        found.append(
            {
                "name": plugin.name,
                "distribution": plugin.distribution,
                "version": plugin.version,
                "module": plugin.module,
                "hooks": hooks,
                "health": health,
            }
        )
    rows = [
        (
            str(p["name"]),
            f"{p['distribution']} {p['version']}",
            ", ".join(p["hooks"]),
            str(p["health"]),
        )
        for p in found
    ]
    result(
        {"plugins": found},
        table(rows, ("plugin", "distribution", "hooks", "health")),
        as_json=as_json,
    )
    try:
        installed()
    except PluginError as error:
        fail(error.what, error.remedy, error.exit_code, ())
        ctx.exit(error.exit_code)
