"""Distillation recipes by name, of this package, of families and of files.

Departures of all recipes from the released code: padding never counts in a mean, and a teacher is
always in evaluation mode.
"""

from pathlib import Path

from zoo.errors import UsageError, did_you_mean
from zoo.families.base import Family
from zoo.families.distillation import DistillationRecipe, Term
from zoo.plugins import recipes_of_plugins
from zoo.training.config.overrides import read_config_file
from zoo.training.config.schema import validate_config

SHARED = (
    DistillationRecipe(
        name="logits",
        source="Hinton et al. 2015, arXiv:1503.02531, section 2",
        objective_weight=0.5,
        terms={"kl": Term(kind="kl", weight=0.5, temperature=2.0)},
    ),
    DistillationRecipe(
        name="minilm",
        source="Wang et al. 2020, arXiv:2002.10957, sections 3.1 and 3.2",
        objective_weight=0.0,
        terms={
            "attention": Term(kind="attention-kl", layers="last"),
            "values": Term(kind="relations", relations=("values",), layers="last"),
        },
        init_layers=None,
    ),
    DistillationRecipe(
        name="minilmv2",
        source="Wang et al. 2021, arXiv:2012.15828, sections 3.1 and 4.1",
        objective_weight=0.0,
        terms={"relations": Term(kind="relations", layers="last", relation_heads=48)},
        init_layers=None,
        settings={
            "optimizer": {"learning_rate": 6e-4, "eps": 1e-6, "weight_decay": 0.01},
            "lr_scheduler": {"warmup_steps": 4000},
            "max_steps": 400_000,
        },
    ),
    DistillationRecipe(
        name="tinybert",
        source="Jiao et al. 2020, arXiv:1909.10351, section 3.1, and general_distill.py",
        objective_weight=0.0,
        terms={
            "attention": Term(kind="attention-mse", layers="uniform"),
            "hidden": Term(
                kind="hidden-mse",
                layers="uniform",
                embeddings=True,
                reduction="elements",
                projection="always",
            ),
        },
        init_layers=None,
    ),
    DistillationRecipe(
        name="patient",
        source="Sun et al. 2019, arXiv:1908.09355, section 3, PKD-Skip",
        objective_weight=0.3,
        terms={
            "kl": Term(kind="kl", weight=0.7, temperature=10.0),
            "first_token": Term(
                kind="first-token-mse", weight=100.0, layers="skip", reduction="elements"
            ),
        },
        init_layers="first",
    ),
)


def all_recipes(family: Family) -> dict[str, DistillationRecipe]:
    """Return the recipes of a student of a family by name: its own, the shared, and plugins'."""
    recipes = (*family.distillation(), *SHARED, *recipes_of_plugins().values())
    return {recipe.name: recipe for recipe in reversed(recipes)}


def find_recipe(name: str | None, family: Family) -> tuple[str, DistillationRecipe]:
    """Return a recipe by its name, or from a YAML file.

    Args:
        name: name, or path of a file; ``None`` for the first of the family, or ``logits``.
        family: family of the student.

    Raises:
        UsageError: there is no such recipe, or a field of the file does not exist.
    """
    if name is not None and name.endswith((".yaml", ".yml")):
        return name, validate_config(read_config_file(Path(name)), DistillationRecipe, name)
    known = all_recipes(family)
    name = name or (*family.distillation(), *SHARED)[0].name
    if name not in known:
        raise UsageError(
            f"there is no distillation recipe {name!r}",
            did_you_mean(name, list(known)) or f"there are {', '.join(known)}, and files in YAML",
        )
    return name, known[name]
