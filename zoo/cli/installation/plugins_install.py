"""The commands ``zoo plugins install`` and ``zoo plugins uninstall``."""

import json
import os
import subprocess
import sys
from typing import Any

import click

from zoo.cli.options import common_options
from zoo.cli.output import fail, note, result, table

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@click.command(
    epilog="""\b
Examples:
  zoo plugins install zoo-mine
  zoo plugins install ./zoo-mine --yes
  zoo plugins install git+https://example.org/zoo-mine.git"""
)
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
@click.option(
    "--upgrade",
    is_flag=True,
    help="Install the newest versions, and paths and URLs again.",
)
@yes_option
@common_options
@click.pass_context
def install(
    ctx: click.Context, specs: tuple[str, ...], upgrade: bool, yes: bool, as_json: bool
) -> None:
    """Install plugins with pip, or uv in an environment of uv, and check them.

    SPEC is a name in the package index, a directory, a wheel, or git+URL. The distributions that
    would be installed are listed first, and nothing is installed without --yes or an answer at the
    terminal. Building and installing a plugin runs its code. Afterwards, its conformance checks run
    in a new process, also where it was installed already. The exit code is 5 if one fails; the
    plugin remains installed, and the message has the command that removes it.

    Options of the installer are set by its environment variables, such as PIP_INDEX_URL.
    """
    from dataclasses import asdict

    from zoo.conformance.plugin_report import DISABLED
    from zoo.plugins.install import install as install_specs
    from zoo.plugins.install import plan_install, require_plugins

    changes = plan_install(specs, upgrade=upgrade)
    value: dict[str, Any] = {"changes": [asdict(c) for c in changes], "installed": False}
    lines = ["everything is installed already"]
    if changes:
        rows = [(c.name, c.version, c.replaces or "", c.url) for c in changes]
        lines = table(rows, ("distribution", "version", "replaces", "from"))
    if changes and not _confirm("Install them?", lines, yes):
        result(value, [*lines, "add --yes to install them"], as_json=as_json)
        return
    if changes:
        install_specs(specs, upgrade=upgrade)
    plugins = _check([plugin.name for plugin in require_plugins(changes, specs)])
    described = []
    for plugin in plugins:
        parts = [f"{kind} {', '.join(names)}" for kind, names in plugin["provides"].items()]
        described.append(f"{plugin['name']}: {'; '.join(parts) or 'nothing'}")
        described += [f"  problem: {line}" for line in plugin.get("problems", ())]
    value |= {"installed": bool(changes), "plugins": plugins}
    result(value, [*lines, *described], as_json=as_json)
    for plugin in plugins:
        if plugin["health"] == DISABLED:
            note(f"{plugin['name']} is disabled; `zoo plugins enable {plugin['name']}`")
        elif plugin["health"] != "ok":
            fail(plugin["health"], f"`zoo plugins uninstall {plugin['name']}` removes it", 5, ())
            ctx.exit(5)


@click.command(epilog="Example: zoo plugins uninstall mine")
@click.argument("name")
@yes_option
@common_options
def uninstall(name: str, yes: bool, as_json: bool) -> None:
    """Uninstall the distribution of the plugin NAME, which may have several plugins."""
    from zoo.plugins.install import distribution_of, plugins_of
    from zoo.plugins.install import uninstall as uninstall_distribution
    from zoo.plugins.settings import read_settings, update_settings

    distribution = distribution_of(name)
    plugins = [plugin.name for plugin in plugins_of([distribution])]
    lines = [f"{distribution} has the plugins {', '.join(plugins)}"]
    done = _confirm("Uninstall it?", lines, yes)
    if done:
        settings = read_settings()  # a file that cannot be read is found before the removal
        uninstall_distribution(distribution)
        if settings.without(plugins) != settings:
            update_settings(lambda before: before.without(plugins))
    lines = [f"{distribution} is uninstalled"] if done else [*lines, "add --yes to uninstall it"]
    value = {"distribution": distribution, "plugins": plugins, "uninstalled": done}
    result(value, lines, as_json=as_json)


def _confirm(question: str, lines: list[str], yes: bool) -> bool:
    """Return the answer at the terminal; without a terminal, no."""
    if yes or not (sys.stdin and sys.stdin.isatty()):
        return yes
    for line in lines:
        note(line)
    return click.confirm(question, err=True)


def _check(names: list[str]) -> list[dict[str, Any]]:
    """Return the results of ``zoo plugins check`` in a new process, which finds new plugins."""
    from zoo.errors import PluginError

    done = subprocess.run(
        [sys.executable, "-m", "zoo", "plugins", "check", *names, "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        check=False,
    )
    try:
        plugins: list[dict[str, Any]] = json.loads(done.stdout)["plugins"]
    except (ValueError, KeyError) as error:
        last = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
        raise PluginError(
            f"{', '.join(names)}: the checks ended with {last.removeprefix('error: ')}",
            f"`zoo plugins uninstall {names[0]}` removes it",
        ) from error
    return plugins
