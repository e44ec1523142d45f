"""Distillation recipes by name: built-in ones, from families and plugins, and from files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from zoo.distillation.term_tables import checked_recipe, without_changed_kinds
from zoo.errors import UsageError, did_you_mean
from zoo.families.base import Family
from zoo.families.distillation import (
    SENTENCES,
    DistillationRecipe,
    Replacement,
    Stage,
    Targets,
    Terms,
)
from zoo.plugins import all_families, recipes_of_plugins
from zoo.training.config.overrides import ConfigDict, deep_merge, read_config_file
from zoo.training.config.schema import validate_config

TEXT = "text"  # The recipe for models with different tokens.
TRANSFORMER_LAYERS: Terms = {  # Jiao et al. 2020, arXiv:1909.10351, equations 7 to 9
    "attention": {"kind": "attention-mse", "layers": "uniform"},
    "hidden": {
        "kind": "hidden-mse",
        "layers": "uniform",
        "embeddings": True,
        "reduction": "elements",
        "projection": "always",
    },
}
LAST_ATTENTION: Terms = {  # Wang et al. 2020, arXiv:2002.10957, equations 5 to 8
    "attention": {"kind": "attention-kl", "layers": "last"},
    "values": {"kind": "relations", "relations": ("values",), "layers": "last"},
}
MINILM = {  # Wang et al. 2020, section 4.1: batches of 1,024 rows of 512 tokens
    "optimizer": {
        "name": "adamw",
        "learning_rate": 5e-4,
        "betas": [0.9, 0.999],
        "weight_decay": 0.01,
    },
    "lr_scheduler": {"name": "linear", "warmup_steps": 4000},
    "max_steps": 400_000,
    "global_batch_tokens": 1024 * 512,
    "seq_len_warmup": None,
}
SHRINK_AND_FINE_TUNE = {  # Shleifer and Rush 2020, the command of the released code
    "batch_size": 64,
    "optimizer": {"learning_rate": 3e-4},
}
SHARED = (
    DistillationRecipe(
        name="logits",
        source="Hinton et al. 2015, arXiv:1503.02531, section 2",
        objective_weight=0.5,
        terms={"kl": {"kind": "kl", "weight": 0.5, "temperature": 2.0}},
    ),
    DistillationRecipe(
        name="minilm",
        source="Wang et al. 2020, arXiv:2002.10957, sections 3.1 and 3.2",
        objective_weight=0.0,
        terms=LAST_ATTENTION,
        init_layers=None,
        settings=MINILM,
    ),
    DistillationRecipe(
        name="minilm-assistant",
        # The student learns from an assistant of the teacher's depth and the student's width.
        source="Wang et al. 2020, arXiv:2002.10957, section 3.3",
        init_layers=None,
        settings=MINILM,
        stages={
            "assistant": Stage(terms=LAST_ATTENTION, student_depth=1.0),
            "student": Stage(terms=LAST_ATTENTION, begins_with="teacher"),
        },
    ),
    DistillationRecipe(
        name="minilmv2",
        source="Wang et al. 2021, arXiv:2012.15828, sections 3.1 and 4.1",
        objective_weight=0.0,
        terms={"relations": {"kind": "relations", "layers": "last", "relation_heads": 48}},
        init_layers=None,
        settings={
            "optimizer": {
                "name": "adamw",
                "learning_rate": 6e-4,
                "eps": 1e-6,
                "weight_decay": 0.01,
            },
            "lr_scheduler": {"warmup_steps": 4000},
            "max_steps": 400_000,
            "global_batch_tokens": 256 * 512,
            "seq_len_warmup": None,
        },
    ),
    DistillationRecipe(
        name="tinybert",
        source="Jiao et al. 2020, arXiv:1909.10351, section 3.1, and general_distill.py",
        objective_weight=0.0,
        terms=TRANSFORMER_LAYERS,
        init_layers=None,
        settings={
            "num_train_epochs": 3.0,
            "warmup_ratio": 0.1,
            "global_batch_tokens": 256 * 128,
            "seq_len": 128,
            "seq_len_warmup": None,
            "optimizer": {"name": "adamw", "learning_rate": 5e-5, "weight_decay": 0.01},
            "lr_scheduler": {"name": "linear"},
        },
    ),
    DistillationRecipe(
        name="tinybert-task",
        # Unlike the released code, the first stage also keeps the checkpoint with the lowest loss,
        # and the prediction layer of a regression learns from the teacher, not from labels.
        source="Jiao et al. 2020, arXiv:1909.10351, section 3.2, and task_distill.py",
        init_layers=None,
        data="labelled",
        settings={"batch_size": 32, "max_seq_len": 128},
        stages={
            "intermediate": Stage(
                terms=TRANSFORMER_LAYERS,
                settings={
                    "num_train_epochs": 10.0,
                    "warmup_ratio": 0.0,
                    "optimizer": {"learning_rate": 5e-5},
                    "lr_scheduler": {"name": "constant"},
                },
            ),
            "prediction": Stage(
                # The paper's soft cross-entropy differs by a constant, the teacher's entropy.
                terms={
                    "kl": {"kind": "kl", "scale_by_temperature": False, "reduction": "elements"},
                },
                settings={
                    "num_train_epochs": 3.0,
                    "warmup_ratio": 0.1,
                    "optimizer": {"learning_rate": 3e-5},
                },
            ),
        },
    ),
    DistillationRecipe(
        name="theseus",
        source="Xu et al. 2020, arXiv:2002.02925, section 3, and run_glue.py of the released code",
        replacement=Replacement(rate=0.1, increment=0.0006),
        init_layers="first",
        settings={  # The released code's example for MRPC.
            "num_train_epochs": 50.0,
            "batch_size": 32,
            "max_seq_len": 128,
            "warmup_ratio": 0.0,
            "optimizer": {"learning_rate": 2e-5, "weight_decay": 0.0, "bias_correction": True},
            "lr_scheduler": {"name": "linear"},
        },
        data="labelled",
    ),
    DistillationRecipe(
        name="embeddings",
        # A narrower student learns a linear map, where the script takes a PCA of the teacher.
        source="Reimers and Gurevych, model_distillation.py of sentence-transformers",
        objective_weight=0.0,
        terms={"embeddings": {"kind": "embeddings", "reduction": "elements"}},
        init_layers="embeddings",
        data=SENTENCES,
        settings={
            "num_train_epochs": 1.0,
            "batch_size": 64,
            "warmup_ratio": 0.1,
            "optimizer": {"name": "adamw", "learning_rate": 1e-4, "eps": 1e-6},
        },
    ),
    DistillationRecipe(
        name="seq2seq",
        source="Shleifer and Rush 2020, arXiv:2010.13002, section 4.1, and make_student.py",
        init_layers="seq2seq",
        data="labelled",
        settings=SHRINK_AND_FINE_TUNE,
    ),
    DistillationRecipe(
        name="sequence",
        source="Kim and Rush 2016, arXiv:1606.07947, section 3.2; Shleifer and Rush 2020",
        init_layers="seq2seq",
        data="labelled",
        targets=Targets(num_beams=5),
        settings=SHRINK_AND_FINE_TUNE,
        stages={"fine-tuning": Stage(objective_weight=1.0)},
    ),
    DistillationRecipe(
        name=TEXT,
        # The paper has no other loss, and trains on sentences and their translations.
        source="Reimers and Gurevych 2020, arXiv:2004.09813, section 2",
        terms={"sentence": {"kind": "sentence-mse", "reduction": "elements"}},
        init_layers=None,
        data="text",
    ),
    DistillationRecipe(
        name="patient",
        # The released script's example of PKD-Skip. For each task, the paper searches the weights
        # 0.2, 0.5 and 0.7, the temperatures 5, 10 and 20, weights of 10 to 1,000 for the layers,
        # and the learning rates 1e-5, 2e-5 and 5e-5.
        source="Sun et al. 2019, arXiv:1908.09355, section 3, and NLI_KD_training.py",
        objective_weight=0.3,
        terms={
            "kl": {"kind": "kl", "weight": 0.7, "temperature": 10.0, "reduction": "elements"},
            "first_token": {
                "kind": "first-token-mse",
                "weight": 500.0,
                "layers": "skip",
                "reduction": "elements",
            },
        },
        init_layers="first",
        data="labelled",
        settings={
            "num_train_epochs": 4.0,
            "batch_size": 32,
            "max_seq_len": 128,
            "optimizer": {"learning_rate": 1e-5},
        },
    ),
)


def all_recipes(family: Family) -> dict[str, DistillationRecipe]:
    """Return the recipes for students of a family by name: its own, shared ones, and plugins'."""
    # All recipes differ from the released code in two ways: padding never counts in a mean, and
    # teachers always run in evaluation mode.
    recipes = (*family.distillation(), *SHARED, *recipes_of_plugins().values())
    return {recipe.name: recipe for recipe in reversed(recipes)}


def any_recipe(name: str | None) -> DistillationRecipe:
    """Return a recipe by its name in any family, or from a YAML file."""
    recipes: dict[str, DistillationRecipe] = {}
    for family in all_families().values():
        recipes.update(all_recipes(family))
    if name is None:
        raise UsageError("no recipe is named", f"--recipe NAME takes {', '.join(sorted(recipes))}")
    return _named_recipe(name, recipes)


def recipe_values(recipe: DistillationRecipe) -> ConfigDict:
    """Return the fields of a recipe for a user's file, without its name and without defaults."""
    values: ConfigDict = _without_defaults(checked_recipe(recipe, defaults=False))
    values.pop("name", None)
    return values


def _without_defaults(value: Any) -> Any:
    """Convert a struct to a dictionary of the fields that are required or not at their default."""
    # Mappings of structs, such as stages by name, are converted entry by entry. If all fields have
    # their defaults, all are written, so that a user sees what can be edited.
    if isinstance(value, dict):
        return {name: _without_defaults(entry) for name, entry in value.items()}
    if not isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    changes = {}
    for field in msgspec.structs.fields(value):
        content = getattr(value, field.name)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if field.required or content != default:
            changes[field.name] = _without_defaults(content)
    return changes or msgspec.to_builtins(value)


def with_stage_changes(recipe: DistillationRecipe, changes: ConfigDict) -> DistillationRecipe:
    """Return a recipe with changes to its stages."""
    for name in changes:
        if name not in recipe.stages:
            names = ", ".join(recipe.stages) or "none"
            raise UsageError(
                f"the recipe {recipe.name} has no stage {name!r}",
                did_you_mean(name, list(recipe.stages)) or f"it has {names}",
            )
    if not changes:
        return recipe
    values = msgspec.to_builtins(recipe)
    for name, change in changes.items():
        terms = change.get("terms") if isinstance(change, Mapping) else None
        values["stages"][name]["terms"] = without_changed_kinds(recipe.stages[name].terms, terms)
    merged = deep_merge(values, {"stages": changes})
    new_recipe = validate_config(merged, DistillationRecipe, "distillation")
    return checked_recipe(new_recipe, "distillation.")


def select_stage(recipe: DistillationRecipe, name: str | None) -> DistillationRecipe:
    """Return one stage of a recipe as a recipe without stages."""
    if name is None and not recipe.stages:
        return recipe
    if name not in recipe.stages:
        raise UsageError(
            f"the recipe {recipe.name} has the stages {', '.join(recipe.stages) or 'none'}"
            + ("" if name is None else f", and not {name!r}"),
            did_you_mean(name, list(recipe.stages)) if name else "",
        )
    stage = recipe.stages[name]
    return msgspec.structs.replace(
        recipe,
        terms=stage.terms,
        objective_weight=stage.objective_weight,
        freeze=stage.freeze,
        student_depth=stage.student_depth or recipe.student_depth,
        settings=deep_merge(recipe.settings, stage.settings),
        targets=None,
        extraction=None,
        stages={},
    )


def find_recipe(
    name: str | None, family: Family, head: str, *, labelled: bool = False
) -> tuple[str, DistillationRecipe]:
    """Return name and recipe; the default is the family's first on text, or a shared one."""
    # ``name`` may be the path of a YAML file.
    family_recipes = [
        r for r in family.distillation() if not labelled and r.objective in (None, head)
    ]
    name = name or (*family_recipes, *SHARED)[0].name
    return name, _named_recipe(name, all_recipes(family))


def _named_recipe(name: str, recipes: Mapping[str, DistillationRecipe]) -> DistillationRecipe:
    """Return one of several recipes by its name, or read one from a YAML file."""
    if name.endswith((".yaml", ".yml")):
        recipe = validate_config(read_config_file(Path(name)), DistillationRecipe, name)
        return checked_recipe(recipe, f"{name}: ")
    if name not in recipes:
        raise UsageError(
            f"unknown distillation recipe {name!r}",
            did_you_mean(name, list(recipes)) or f"give {', '.join(recipes)}, or a YAML file",
        )
    return checked_recipe(recipes[name], f"recipe {name}: ")
