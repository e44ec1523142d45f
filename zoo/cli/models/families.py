"""The command ``zoo families``."""

import contextlib
from typing import Any

import click

from zoo.cli.completion import FAMILY
from zoo.cli.options import common_options
from zoo.cli.output import fields, hint, markdown, result, table
from zoo.io.numbers import format_bytes, format_count

COLUMNS = ("family", "heads", "tasks", "pretraining", "sizes")
FLOAT32_BYTES = 4


@click.command(
    epilog="""\b
Examples:
  zoo families
  zoo families FAMILY
  zoo families --sizes"""
)
@click.argument("name", type=FAMILY, required=False, metavar="[FAMILY]")
@click.option("--sizes", is_flag=True, help="List all sizes with parameters and bytes.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a table in Markdown.")
@common_options
def command(name: str | None, sizes: bool, as_markdown: bool, as_json: bool) -> None:
    """List the model families, or describe one: its heads, tasks, recipes and sizes.

    The lists show what the installed plugins declare. Parameters are counted without a head.
    """
    from zoo.plugins import all_families, get_family, warn_or_raise
    from zoo.plugins.attribution import provider_error

    installed = all_families() if name is None else {name: get_family(name)}
    families: dict[str, dict[str, Any]] = {}
    parameters: dict[str, dict[str, int]] = {}
    for family_name, family in sorted(installed.items()):
        try:
            families[family_name] = _record(family)
            parameters[family_name] = _parameters_by_size(family)
        except Exception as error:  # An error of one plugin must not hide the others.
            plugin_error = provider_error(family, error)
            if plugin_error is None:
                raise
            families.pop(family_name, None)
            warn_or_raise(plugin_error)
    if name is not None or sizes:
        for family_name, record in families.items():
            record["parameters"] = parameters[family_name]
    lines = list[str]()
    if as_markdown:
        lines = _markdown_table(families)
    elif sizes:
        lines = _size_table(parameters, families)
    elif name is None:
        lines = _overview(families, parameters)
    elif name in families:
        lines = _description(installed[name], families[name])
    result({"families": families}, lines, as_json=as_json, is_file=as_markdown)
    if name is None and not (as_json or as_markdown or sizes):
        hint("`zoo families NAME` shows the heads, tasks, recipes and sizes of a family")


def _record(family: Any) -> dict[str, Any]:
    """Return what a family declares, for ``--json``."""
    heads = family.heads()
    tasks = set[str]()
    for head in heads.values():
        tasks.update(head.tasks)
    return {
        "heads": {name: head.summary for name, head in heads.items()},
        "tasks": sorted(tasks),
        "pretraining": sorted({*_objectives(family).values()}),
        "sizes": list(family.sizes()),
        "model_types": list(family.model_types),
        "default_checkpoint": family.default_checkpoint,
    }


def _parameters_by_size(family: Any) -> dict[str, int]:
    numbers = {}
    for size, config in family.sizes().items():
        numbers[size] = family.weights(config, "none").parameters()
    return numbers


def _markdown_table(families: dict[str, dict[str, Any]]) -> list[str]:
    rows = []
    for name, record in families.items():
        row = [name]
        for column in COLUMNS[1:]:
            row.append(", ".join(record[column]))
        rows.append(row)
    return markdown(rows, COLUMNS)


def _size_table(
    parameters: dict[str, dict[str, int]], families: dict[str, dict[str, Any]]
) -> list[str]:
    """Return a table with a row for each size of each family."""
    rows = []
    for name in families:
        for size, number in parameters[name].items():
            float32_size = format_bytes(FLOAT32_BYTES * number)
            rows.append((name, size, format_count(number), float32_size))
    return table(rows, ("family", "size", "parameters", "float32"))


def _overview(
    families: dict[str, dict[str, Any]], parameters: dict[str, dict[str, int]]
) -> list[str]:
    """Return a table with a row for each family."""
    rows = []
    for name, record in families.items():
        numbers = [format_count(number) for number in sorted(parameters[name].values())]
        span = f"{numbers[0]} to {numbers[-1]}" if numbers else ""
        rows.append((name, str(len(record["sizes"])), span, ", ".join(record["pretraining"])))
    return table(rows, ("family", "sizes", "parameters", "pretraining"))


def _objectives(family: Any) -> dict[str, str]:
    """Return size -> objective of its pretraining recipe."""
    from zoo.errors import UsageError

    objectives = {}
    for size in family.sizes():
        with contextlib.suppress(UsageError):  # The family has no recipe of this size, or none.
            objectives[size] = family.recipe(size).objective
    return objectives


def _description(family: Any, record: dict[str, Any]) -> list[str]:
    """Return the lines that describe one family."""
    facts = {
        "family": family.name,
        "model types": ", ".join(record["model_types"]),
        "default checkpoint": record["default_checkpoint"],
        "tasks": ", ".join(record["tasks"]),
        "tokenizers": ", ".join(family.new_tokenizers),
        "objectives of its own": ", ".join(family.objectives),
        "fine-tuning presets": ", ".join(family.presets()),
        "distillation recipes": ", ".join(recipe.name for recipe in family.distillation()),
    }
    objectives = _objectives(family)
    rows = []
    for size, number in record["parameters"].items():
        float32_size = format_bytes(FLOAT32_BYTES * number)
        rows.append((size, format_count(number), float32_size, objectives.get(size, "")))
    return [
        *fields({name: text for name, text in facts.items() if text}),
        "",
        *table([*record["heads"].items()], ("head", "outputs")),
        "",
        *table(rows, ("size", "parameters", "float32", "pretraining recipe")),
    ]
