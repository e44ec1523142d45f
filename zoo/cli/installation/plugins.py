"""The command ``zoo plugins`` and its subcommands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import COMMANDS as ALL_COMMANDS
from zoo.cli import LazyGroup
from zoo.cli.options import common_options
from zoo.cli.output import fail, fields, note, result, table

if TYPE_CHECKING:
    from zoo.conformance.plugin_report import PluginReport

COLUMNS = ("plugin", "distribution", "location", "record", "provides", "health")
# Columns that a narrow terminal does not show, and columns whose cells it breaks.
DROPPED_COLUMNS = ("record", "location")
WRAPPED_COLUMNS = ("provides", "health")
HERE = "zoo.cli.installation"
COMMANDS = {
    "list": (f"{HERE}.plugins:list_all", "List the plugins, as without a subcommand."),
    "info": (f"{HERE}.plugins:info", "Describe one plugin."),
    "check": (f"{HERE}.plugins:check", "Run the conformance checks on plugins."),
    "enable": (f"{HERE}.plugins:enable", "Enable a plugin."),
    "disable": (f"{HERE}.plugins:disable", "Disable a plugin, built-in or not."),
    "install": (f"{HERE}.plugins_install:install", "Install plugins and check them."),
    "search": (f"{HERE}.plugins_search", "Search the directory of known plugins."),
    "new": (f"{HERE}.plugins_new", "Write the project of a new plugin."),
    "uninstall": (f"{HERE}.plugins_install:uninstall", "Uninstall the distribution of a plugin."),
}


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    invoke_without_command=True,
    epilog="""\b
Examples:
  zoo plugins
  zoo plugins info mine
  zoo plugins check mine
  zoo plugins search rembert
  zoo plugins new mine --like decoder
  zoo plugins install ./zoo-mine
  ZOO_PLUGINS=mine zoo plugins""",
)
@common_options
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the plugins, write new ones, install them and check them.

    Without a subcommand, all plugins are listed with distribution, location, digest of the
    distribution's list of files, what they provide, and health: a plugin is healthy if its first
    module can be imported and its hooks return what they should. The exit code is 5 if two plugins
    have the same name.

    $ZOO_HOME/plugins.yaml lists the plugins that are enabled and disabled; $ZOO_PLUGINS=a,b takes
    its place. ZOO_STRICT_PLUGINS=1 makes a broken plugin an error in every command.
    """
    if ctx.invoked_subcommand is None:
        _list(ctx, as_json)


@click.command(epilog="Example: zoo plugins list")
@common_options
@click.pass_context
def list_all(ctx: click.Context, as_json: bool) -> None:
    """List the plugins with distribution, what they provide, and health."""
    _list(ctx, as_json)


def _list(ctx: click.Context, as_json: bool) -> None:
    from zoo.plugins.discovery import conflict, entry_points_by_name
    from zoo.plugins.entry_point_objects import unread_entry_points

    reports = _reports()
    rows = []
    for report in reports:
        health = [text for text in (report.health, report.remedy) if text]
        row = (
            report.name,
            f"{report.distribution} {report.version}",
            report.location or "",
            (report.record_sha256 or "")[:12],
            report.summary,
            "; ".join(health),
        )
        rows.append(row)
    warnings = list(unread_entry_points())
    for warning in warnings:
        note(f"warning: {warning}")
    value: dict[str, Any] = {"plugins": [report.to_dict() for report in reports]}
    if warnings:
        value["warnings"] = warnings
    lines = table(rows, COLUMNS, drops=DROPPED_COLUMNS, wraps=WRAPPED_COLUMNS)
    result(value, lines, as_json=as_json)
    for rivals in entry_points_by_name().values():
        if error := conflict(rivals):
            fail(error.what, error.hint, error.exit_code, ())
            ctx.exit(error.exit_code)


@click.command(epilog="Example: zoo plugins info mine")
@click.argument("name")
@common_options
def info(name: str, as_json: bool) -> None:
    """Describe the plugin NAME: distribution, location, what it provides, and health."""
    reports = _reports([name])
    lines = []
    for report in reports:
        facts = {
            "plugin": report.name,
            "distribution": f"{report.distribution} {report.version}",
            "api": str(report.api),
            "module": report.module,
            "location": report.location or "not installed",
            "record": report.record_sha256 or "none",
        }
        for group, names in report.provides.items():
            facts[group] = ", ".join(names)
        facts["health"] = report.health
        if report.remedy:
            facts["remedy"] = report.remedy
        lines += fields(facts)
    result({"plugins": [report.to_dict() for report in reports]}, lines, as_json=as_json)


@click.command(
    epilog="""\b
Examples:
  zoo plugins check
  zoo plugins check mine"""
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--full",
    is_flag=True,
    help="Also run the checks that need training or transformers.",
)
@common_options
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...], full: bool, as_json: bool) -> None:
    """Run the conformance checks on the plugins NAMEs, by default on all that are enabled.

    All modules are imported in a separate process, and the checks that need no training run on the
    smallest model of each family, which takes seconds to a minute for each. --full adds those that
    train, export, and compare with transformers, which take minutes, and lists those that do not
    apply. Each problem is a line. The exit code is 5 if a plugin fails.
    """
    from zoo.conformance.plugin_checks import check_plugins
    from zoo.conformance.plugin_report import DISABLED, OK
    from zoo.errors import PluginError
    from zoo.plugins import broken, installed

    reports = _reports(names)
    if not names:
        reports = [report for report in reports if report.health != DISABLED]
    healthy_reports = [report for report in reports if report.health == OK]
    findings = check_plugins([report.name for report in healthy_reports], full=full)
    for report in healthy_reports:
        for finding in findings[report.name]:
            if finding.skipped:
                report.skipped.append(finding.text)
            else:
                report.problems.append(finding.text)
        if report.problems:
            problem = report.problems[0]
            if len(report.problems) > 1:
                problem += f", and {len(report.problems) - 1} more"
            report.set_error(broken(installed()[report.name], problem))
    lines = []
    for report in reports:
        lines += report.lines(skipped=full)
    result({"plugins": [report.to_dict() for report in reports]}, lines, as_json=as_json)
    unhealthy_reports = [report for report in reports if report.health != OK]
    if unhealthy_reports:
        descriptions = []
        for report in unhealthy_reports:
            descriptions.append(f"{report.name} (from {report.distribution} {report.version})")
        error = PluginError(
            f"{len(unhealthy_reports)} of {len(reports)} plugins fail: {', '.join(descriptions)}"
        )
        fail(error.what, unhealthy_reports[0].remedy, error.exit_code, ())
        ctx.exit(error.exit_code)


def _reports(names: Sequence[str] = ()) -> "list[PluginReport]":
    """Return the descriptions of plugins, by default of all."""
    from zoo.conformance.plugin_report import report_plugins

    return report_plugins(names, ALL_COMMANDS)


@click.command(epilog="Example: zoo plugins enable mine")
@click.argument("name")
@common_options
def enable(name: str, as_json: bool) -> None:
    """Enable the plugin NAME in $ZOO_HOME/plugins.yaml."""
    _set_enabled(name, True, as_json)


@click.command(epilog="Example: zoo plugins disable mine")
@click.argument("name")
@common_options
def disable(name: str, as_json: bool) -> None:
    """Disable the plugin NAME in $ZOO_HOME/plugins.yaml: no command imports it."""
    _set_enabled(name, False, as_json)


def _set_enabled(name: str, enabled: bool, as_json: bool) -> None:
    import os

    from zoo.conformance.plugin_report import require_known
    from zoo.errors import UsageError
    from zoo.plugins.discovery import ALWAYS
    from zoo.plugins.settings import read_settings, settings_file, update_settings

    settings = read_settings()
    if name not in (*settings.disabled, *(settings.enabled or ())):
        require_known(name)
    if name in ALWAYS and not enabled:
        raise UsageError(f"{name} cannot be disabled: all commands use it")
    update_settings(lambda before: before.with_plugin(name, enabled))
    if "ZOO_PLUGINS" in os.environ:
        note(f"$ZOO_PLUGINS is set, and takes the place of {settings_file()}")
    line = f"{name} is {'enabled' if enabled else 'disabled'} in {settings_file()}"
    value = {"name": name, "enabled": enabled, "file": str(settings_file())}
    result(value, [line], as_json=as_json)
