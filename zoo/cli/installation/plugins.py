"""``zoo plugins``."""

from typing import Any

import click

from zoo.cli.options import json_option
from zoo.cli.output import fail, result, table


@click.command(
    epilog="""\b
Examples:
  zoo plugins
  zoo plugins --check
  ZOO_PLUGINS=mine zoo plugins"""
)
@click.option("--check", is_flag=True, help="Import every file of every plugin, and build models.")
@json_option
@click.pass_context
def command(ctx: click.Context, check: bool, as_json: bool) -> None:
    """List the plugins: name, distribution, version, hooks, health.

    A plugin is healthy if its first module can be imported. With --check, every file of it is
    imported, in a process of its own, and the smallest model of each of its families is built;
    exits with 5 if one fails.

    $ZOO_PLUGINS=a,b restricts what is loaded; ZOO_STRICT_PLUGINS=1 makes a broken plugin an
    error in every command. Where several have one name, no command knows which is meant: exits
    with 5.
    """
    from zoo.errors import PluginError
    from zoo.plugins import installed

    plugins = _health()
    if check:
        _look_into_files(plugins)
    rows = [
        (p["name"], f"{p['distribution']} {p['version']}", ", ".join(p["hooks"]), p["health"])
        for p in plugins
    ]
    lines = table(rows, ("plugin", "distribution", "hooks", "health"))
    result({"plugins": plugins}, lines, as_json=as_json)
    try:
        installed()
        if check and (sick := [p["health"] for p in plugins if p["health"] != "ok"]):
            raise PluginError(f"{len(sick)} of the plugins are broken: {sick[0]}")
    except PluginError as error:
        fail(error.what, error.hint, error.exit_code, ())
        ctx.exit(error.exit_code)


def _health() -> list[dict[str, Any]]:
    from zoo.errors import PluginError
    from zoo.plugins import entry_points_by_name, hooks_of

    plugins = []
    for plugin in (plugin for rivals in entry_points_by_name().values() for plugin in rivals):
        try:
            hooks, health = hooks_of(plugin.name), "ok"
        except PluginError as error:
            hooks, health = [], str(error)
        plugins.append(
            {
                "name": plugin.name,
                "distribution": plugin.distribution,
                "version": plugin.version,
                "module": plugin.module,
                "hooks": hooks,
                "health": health,
            }
        )
    return plugins


def _look_into_files(plugins: list[dict[str, Any]]) -> None:
    """Replace the health of plugins that can be loaded by what all of their files say."""
    from zoo.plugins import broken, installed
    from zoo.plugins.check import check_plugins

    loaded = [p for p in plugins if p["health"] == "ok"]
    problems = check_plugins([p["name"] for p in loaded])
    for plugin in loaded:
        if lines := problems[plugin["name"]]:
            more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
            plugin["health"] = str(broken(installed()[plugin["name"]], lines[0] + more))
            plugin["problems"] = lines
