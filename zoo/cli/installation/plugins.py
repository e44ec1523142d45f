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
  zoo plugins --check mine
  ZOO_PLUGINS=mine zoo plugins"""
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--check",
    is_flag=True,
    help="Import all modules of the plugins and check their smallest models.",
)
@common_options
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...], check: bool, as_json: bool) -> None:
    """List the plugins, or those NAMEs, with distribution, version, hooks and health.

    A plugin is healthy if its first module can be imported. With --check, all its modules are
    imported in a separate process and the conformance checks run on the smallest model of each of
    its families, which takes seconds to a minute for each. The exit code is 5 if a plugin fails or
    two plugins have the same name.

    $ZOO_PLUGINS=a,b restricts which plugins are loaded; ZOO_STRICT_PLUGINS=1 makes a broken
    plugin an error in every command.
    """
    from zoo.errors import PluginError
    from zoo.plugins import entry_points_by_name
    from zoo.plugins.discovery import conflict

    plugins = _health(names)
    if check:
        _check_plugins(plugins)
    rows = [
        (p["name"], f"{p['distribution']} {p['version']}", ", ".join(p["hooks"]), p["health"])
        for p in plugins
    ]
    lines = table(rows, ("plugin", "distribution", "hooks", "health"))
    result({"plugins": plugins}, lines, as_json=as_json)
    try:
        for rivals in entry_points_by_name().values():
            if error := conflict(rivals):
                raise error
        if check and (unhealthy := [p["health"] for p in plugins if p["health"] != "ok"]):
            raise PluginError(f"{len(unhealthy)} of the plugins are broken: {unhealthy[0]}")
    except PluginError as error:
        fail(error.what, error.hint, error.exit_code, ())
        ctx.exit(error.exit_code)


def _health(names: tuple[str, ...]) -> list[dict[str, Any]]:
    from zoo.errors import PluginError
    from zoo.plugins import entry_points_by_name, hooks_of, require_installed

    plugins, known = [], entry_points_by_name()
    for name in names:
        require_installed(name)
    for plugin in (plugin for name in names or known for plugin in known[name]):
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


def _check_plugins(plugins: list[dict[str, Any]]) -> None:
    """Update the health of the plugins that load by importing and checking all of each."""
    from zoo.conformance.plugin_checks import check_plugins
    from zoo.plugins import broken, installed

    loaded = [p for p in plugins if p["health"] == "ok"]
    problems = check_plugins([p["name"] for p in loaded])
    for plugin in loaded:
        if lines := problems[plugin["name"]]:
            others = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
            plugin["health"] = str(broken(installed()[plugin["name"]], lines[0] + others))
            plugin["problems"] = lines
