"""The tables of docs/distillation.md are those of the recipes, terms and layer maps."""

import re
from pathlib import Path
from typing import Any, get_args

import yaml

from zoo.distillation.layer_maps import resolve_layers
from zoo.distillation.losses import DISTILLATION_LOSSES
from zoo.distillation.recipes import SHARED
from zoo.distillation.term_tables import checked_recipe, parse_terms, term_table
from zoo.families.distillation import DistillationRecipe, LayerMap, Terms
from zoo.plugins import all_families
from zoo.training.config.schema import validate_config

PAGE = Path(__file__).parents[2] / "docs" / "distillation.md"
TEXT = PAGE.read_text("utf-8")
LOSSES = {name: DISTILLATION_LOSSES.find(name) for name in DISTILLATION_LOSSES.names()}
ALL_SETTINGS = {name for loss in LOSSES.values() for name in loss.setting_names()}


def table(heading: str) -> list[list[str]]:
    """Return the cells of the rows of the first table after a heading."""
    lines = TEXT.partition(heading)[2].splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("| --- "))
    rows = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def terms_of(terms: Terms) -> str:
    parts = []
    for term in parse_terms(terms):
        table = term_table(term)
        weight = "" if term.weight == 1 else f"{term.weight:g} "
        heat = "" if table.get("temperature", 1) == 1 else f", T = {table['temperature']:g}"
        layers = f", {table['layers']}" if "layers" in table else ""
        logits = "" if table.get("logits_of") is None else f" of {table['logits_of']}"
        parts.append(f"{weight}`{term.loss.name}`{logits}{layers}{heat}")
    return "; ".join(parts) or "none"


def row(family: str, recipe: DistillationRecipe) -> list[str]:
    """Return the cells of a recipe, in order of the columns."""
    stages = [f"*{name}*: {terms_of(stage.terms)}" for name, stage in recipe.stages.items()]
    terms = "; ".join(stages) or terms_of(recipe.terms)
    if recipe.replacement is not None:
        terms = "layers replace the teacher's"
    weights = [stage.objective_weight for stage in recipe.stages.values()]
    return [
        f"`{recipe.name}`",
        family,
        recipe.data,
        terms,
        ", ".join(f"{weight:g}" for weight in weights or [recipe.objective_weight]),
        "new weights" if recipe.init_layers is None else f"{recipe.init_layers}",
        recipe.source,
    ]


def rows() -> list[list[str]]:
    families = sorted(all_families().items())
    ours = [row(name, recipe) for name, family in families for recipe in family.distillation()]
    return [*ours, *(row("any", recipe) for recipe in SHARED)]


def test_the_table_of_recipes_is_that_of_the_code() -> None:
    assert table("## Recipes") == rows()


def test_every_kind_of_term_has_a_row() -> None:
    assert sorted(cells[0].strip("`") for cells in table("## Terms")) == [*LOSSES]


def test_every_kind_reads_the_fields_of_its_row() -> None:
    for cells in table("## Terms"):
        named = {word.partition(":")[0] for word in re.findall(r"`([^`]+)`", cells[2])}
        settings = {*LOSSES[cells[0].strip("`")].setting_names()}
        assert named & ALL_SETTINGS == settings, cells[0]


def test_the_layer_maps_are_those_of_the_code() -> None:
    named = table("**Layer maps**")
    for cells in named:
        name: Any = cells[0].strip("`")
        for cell, student in zip(cells[1:], (4, 6), strict=True):
            expected = ", ".join(str(layer) for _, layer in resolve_layers(name, student, 12))
            assert cell.removesuffix(", only of the last layer") == expected
    (names, _) = get_args(LayerMap)
    assert {cells[0].strip("`") for cells in named} | {"embeddings", "seq2seq"} == set(
        get_args(names)
    )


def test_the_recipe_of_the_page_is_one() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    recipe = validate_config(yaml.safe_load(example), DistillationRecipe, "page")
    assert checked_recipe(recipe).terms["kl"]["temperature"] == 4


if __name__ == "__main__":  # prints the rows, for the page
    print("\n".join(f"| {' | '.join(cells)} |" for cells in rows()))
