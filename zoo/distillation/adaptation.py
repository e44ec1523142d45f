"""Recipes and settings that are adapted to the data and the models of a run."""

import logging
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from zoo.data.readers.glue import PREFIX, glue_task
from zoo.distillation.losses import loss_names
from zoo.distillation.losses.kl import WITHOUT_PROBABILITIES
from zoo.distillation.recipes import SENTENCES
from zoo.errors import UsageError
from zoo.families.config import Config
from zoo.families.distillation import TEXT_SCHEDULE, DistillationRecipe, Term
from zoo.training.config.overrides import ConfigDict

LOG = logging.getLogger("zoo")
OF_TEXT = (
    "objective_args",
    "global_batch_tokens",
    "micro_batch_tokens",
    "seq_len",
    "seq_len_warmup",
)
SCHEDULE = ("max_steps", "num_train_epochs", "warmup_ratio", "lr_scheduler")
MICRO_BATCH = {"micro_batch_tokens": 4096}  # logits of all tokens of two models take memory


def adapt_to_data(recipe: DistillationRecipe, task: str | None) -> DistillationRecipe:
    """Return a recipe for the data of a run.

    Outputs without probabilities, those of regression and of several labels, are compared by their
    squared errors where the recipe compares probabilities. Labelled data has no positions besides
    the predicted ones.
    """
    from zoo.plugins.tasks import training_task

    _check_data(recipe, task)
    if task is None:
        return recipe
    terms = {
        name: msgspec.structs.replace(term, positions="predicted")
        for name, term in recipe.terms.items()
    }
    published = recipe.name and recipe.data == "any"  # whose schedule is that of its text
    left_out = (*OF_TEXT, *(SCHEDULE if published else ()))
    of_task = {name: value for name, value in recipe.settings.items() if name not in left_out}
    recipe = msgspec.structs.replace(recipe, settings=of_task, terms=terms)
    kind = glue_task(task).kind if task.startswith(PREFIX) else task
    if training_task(kind).problem not in WITHOUT_PROBABILITIES:
        return recipe
    terms = {
        "logits" if name == term.kind == "kl" and "logits" not in recipe.terms else name: (
            squared_error_of(term)
        )
        for name, term in recipe.terms.items()
    }
    return msgspec.structs.replace(recipe, terms=terms)


def _check_data(recipe: DistillationRecipe, task: str | None) -> None:
    """Raise an error if a recipe is for other data than a run has."""
    if recipe.data == "labelled" and task is None:
        raise UsageError(
            f"the recipe {recipe.name} is for labelled data",
            "name a task with --task, and its data with --train",
        )
    if (recipe.data == SENTENCES) != (task == SENTENCES):
        raise UsageError(f"{SENTENCES} are for recipes of embeddings, such as `embeddings`")
    if recipe.data == "text" and task is not None:
        raise UsageError(
            f"the recipe {recipe.name} is for text without labels",
            "leave out --task, and name the text with --train",
        )


def adapt_to_widths(
    recipe: DistillationRecipe, student: Config, teacher: Config
) -> DistillationRecipe:
    """Return a recipe whose numbers of relation heads divide the widths of both models.

    A built-in recipe has those of a paper's models; others get the largest smaller number. A user's
    recipe has no name, and is not changed.
    """
    widths = [getattr(config, "hidden_size", 0) for config in (student, teacher)]
    if not recipe.name or not all(widths):
        return recipe
    terms = {
        name: _with_common_divisor(name, term, math.gcd(*widths))
        for name, term in recipe.terms.items()
    }
    return msgspec.structs.replace(recipe, terms=terms)


def _with_common_divisor(name: str, term: Term, width: int) -> Term:
    """Return a term with relation heads that divide a width."""
    heads = term.relation_heads
    if heads is None or width % heads == 0:
        return term
    fitting = max(number for number in range(1, heads) if width % number == 0)
    LOG.info("terms.%s.relation_heads is %d: %d does not divide both widths", name, fitting, heads)
    return msgspec.structs.replace(term, relation_heads=fitting)


def text_settings(recipe: DistillationRecipe, longest: int) -> ConfigDict:
    """Return the settings of a run on text."""
    settings = {**MICRO_BATCH, **recipe.settings}
    if not {"max_steps", "num_train_epochs"} & {*settings}:
        settings = {**TEXT_SCHEDULE, **settings}
    if "seq_len" in settings:
        settings["seq_len"] = min(settings["seq_len"], longest)
    return settings


def without_relative(settings: ConfigDict, others: Mapping[str, Any]) -> ConfigDict:
    """Return settings without epochs and shares of steps, where others give numbers of steps."""
    replaced = {
        "num_train_epochs": "max_steps" in others,
        "warmup_ratio": "warmup_steps" in (others.get("lr_scheduler") or {}),
    }
    return {name: value for name, value in settings.items() if not replaced.get(name)}


def with_requested_kinds(
    recipe: DistillationRecipe, requested: Mapping[str, Any]
) -> DistillationRecipe:
    """Return a recipe without the fields of terms that are to have another kind, but the weight."""
    terms = (requested.get("distillation") or {}).get("terms") or {}
    kinds = {name: term["kind"] for name, term in terms.items() if _names_kind(term)}
    changed = {
        name: Term(kind=kinds[name], weight=term.weight)
        if kinds.get(name, term.kind) != term.kind
        else term
        for name, term in recipe.terms.items()
    }
    return msgspec.structs.replace(recipe, terms=changed)


def _names_kind(term: Any) -> bool:
    return isinstance(term, Mapping) and term.get("kind") in loss_names()


def squared_error_of(term: Term) -> Term:
    """Return a term over probabilities as one over logits, and others as they are."""
    return Term(kind="logits-mse", weight=term.weight) if term.kind == "kl" else term
