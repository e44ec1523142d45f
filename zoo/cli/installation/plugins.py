"""The command ``zoo plugins``."""

from typing import Any

import click

from zoo.cli.options import common_options
from zoo.cli.output import fail, result, table


@click.command(
    epilog="""\b
Examples:
  zoo plugins
  zoo plugins --check
  ZOO_PLUGINS=mine zoo plugins"""
)
@click.option(
    "--check",
    is_flag=True,
    help="Import all modules of the plugins and build their smallest models.",
)
@common_options
@click.pass_context
def command(ctx: click.Context, check: bool, as_json: bool) -> None:
    """List the plugins with distribution, version, hooks and health.

    A plugin is healthy if its first module can be imported. With --check, all its modules are
    imported in a separate process and the smallest model of each of its families is built. The
    exit code is 5 if a plugin fails or two plugins have the same name.

    $ZOO_PLUGINS=a,b restricts which plugins are loaded; ZOO_STRICT_PLUGINS=1 makes a broken
    plugin an error in every command.
    """
    from zoo.errors import PluginError
    from zoo.plugins import installed

    plugins = _health()
    if check:
        _check_modules(plugins)
    rows = [
        (p["name"], f"{p['distribution']} {p['version']}", ", ".join(p["hooks"]), p["health"])
        for p in plugins
    ]
    lines = table(rows, ("plugin", "distribution", "hooks", "health"))
    result({"plugins": plugins}, lines, as_json=as_json)
    try:
        installed()
        if check and (unhealthy := [p["health"] for p in plugins if p["health"] != "ok"]):
            raise PluginError(f"{len(unhealthy)} of the plugins are broken: {unhealthy[0]}")
    except PluginError as error:
        fail(error.what, error.hint, error.exit_code, ())
        ctx.exit(error.exit_code)


def _health() -> list[dict[str, Any]]:
    from zoo.errors import PluginError
    from zoo.plugins import entry_points_by_name, hooks_of

    plugins = []
    for plugin in (plugin for same_name in entry_points_by_name().values() for plugin in same_name):
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


def _check_modules(plugins: list[dict[str, Any]]) -> None:
    """Update the health of the plugins that load, by importing all of their modules."""
    from zoo.plugins import broken, installed
    from zoo.plugins.check import check_plugins

    loaded = [p for p in plugins if p["health"] == "ok"]
    problems = check_plugins([p["name"] for p in loaded])
    for plugin in loaded:
        if lines := problems[plugin["name"]]:
            others = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
            plugin["health"] = str(broken(installed()[plugin["name"]], lines[0] + others))
            plugin["problems"] = lines
