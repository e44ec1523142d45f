"""The command ``zoo families``."""

from typing import Any

import click

from zoo.cli.completion import FAMILY
from zoo.cli.options import common_options
from zoo.cli.output import fields, hint, markdown, result, table
from zoo.io.numbers import format_bytes, format_count

COLUMNS = ("family", "heads", "tasks", "pretraining", "sizes")
FLOAT32 = 4  # bytes


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

    found = all_families() if name is None else {name: get_family(name)}
    families: dict[str, dict[str, Any]] = {}
    parameters: dict[str, dict[str, int]] = {}
    for family_name, family in sorted(found.items()):
        try:
            heads = family.heads()
            families[family_name] = {
                "heads": {name: head.summary for name, head in heads.items()},
                "tasks": sorted({task for head in heads.values() for task in head.tasks}),
                "pretraining": sorted({*_objectives(family).values()}),
                "sizes": list(family.sizes()),
                "model_types": list(family.model_types),
                "default_checkpoint": family.default_checkpoint,
            }
            parameters[family_name] = {
                size: family.weights(config, "none").parameters()
                for size, config in family.sizes().items()
            }
        except Exception as error:  # an error of one plugin must not hide the others
            if (blamed := provider_error(family, error)) is None:
                raise
            families.pop(family_name, None)
            warn_or_raise(blamed)
    if name is not None or sizes:
        for family_name, item in families.items():
            item["parameters"] = parameters[family_name]
    if as_markdown:
        rows = [(n, *(", ".join(item[c]) for c in COLUMNS[1:])) for n, item in families.items()]
        lines = markdown(rows, COLUMNS)
    elif sizes:
        rows = [
            (n, size, format_count(count), format_bytes(FLOAT32 * count))
            for n, item in families.items()
            for size, count in item["parameters"].items()
        ]
        lines = table(rows, ("family", "size", "parameters", "float32"))
    elif name is not None:
        lines = _description(found[name], families[name]) if name in families else []
    else:
        rows = []
        for n, item in families.items():
            counts = [format_count(c) for c in sorted(parameters[n].values())]
            span = f"{counts[0]} to {counts[-1]}" if counts else ""
            rows.append((n, str(len(item["sizes"])), span, ", ".join(item["pretraining"])))
        lines = table(rows, ("family", "sizes", "parameters", "pretraining"))
    result({"families": families}, lines, as_json=as_json, is_file=as_markdown)
    if name is None and not (as_json or as_markdown or sizes):
        hint("`zoo families NAME` shows the heads, tasks, recipes and sizes of a family")


def _objectives(family: Any) -> dict[str, str]:
    """Return size -> objective of its pretraining recipe."""
    from zoo.errors import UsageError

    try:
        return {size: family.recipe(size).objective for size in family.sizes()}
    except UsageError:  # it has no recipe
        return {}


def _description(family: Any, item: dict[str, Any]) -> list[str]:
    """Return the lines that describe one family."""
    named = {
        "family": family.name,
        "model types": ", ".join(item["model_types"]),
        "default checkpoint": item["default_checkpoint"],
        "tasks": ", ".join(item["tasks"]),
        "tokenizers": ", ".join(family.new_tokenizers),
        "objectives of its own": ", ".join(family.objectives),
        "fine-tuning presets": ", ".join(family.presets()),
        "distillation recipes": ", ".join(recipe.name for recipe in family.distillation()),
    }
    objectives = _objectives(family)
    rows = [
        (size, format_count(count), format_bytes(FLOAT32 * count), objectives.get(size, ""))
        for size, count in item["parameters"].items()
    ]
    return [
        *fields({name: text for name, text in named.items() if text}),
        "",
        *table([*item["heads"].items()], ("head", "outputs")),
        "",
        *table(rows, ("size", "parameters", "float32", "pretraining recipe")),
    ]
