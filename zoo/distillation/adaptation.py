"""Adaptation of recipes and settings to the data and the models of a run."""

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
MICRO_BATCH = {"micro_batch_tokens": 4096}  # two models' logits of all tokens take much memory


def adapt_to_data(recipe: DistillationRecipe, task: str | None) -> DistillationRecipe:
    """Return a recipe adapted to text, or to a task on labelled data."""
    # Regression and multi-label outputs are not probabilities: they are compared by squared error
    # where the recipe has a KL divergence. Labelled data only has predicted positions.
    from zoo.plugins.tasks import training_task

    if recipe.data == "labelled" and task is None:
        raise UsageError(
            f"the recipe {recipe.name} is for labelled data",
            "name a task with --task, and its data with --train",
        )
    if (recipe.data == SENTENCES) != (task == SENTENCES):
        raise UsageError(f"{SENTENCES} need a recipe for embeddings, such as `embeddings`")
    if recipe.data == "text" and task is not None:
        raise UsageError(
            f"the recipe {recipe.name} is for text without labels",
            "leave out --task, and name the text with --train",
        )
    if task is None:
        return recipe
    terms = {
        name: msgspec.structs.replace(term, positions="predicted")
        for name, term in recipe.terms.items()
    }
    published = recipe.name and recipe.data == "any"  # its schedule was made for text
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


def adapt_to_widths(
    recipe: DistillationRecipe, student: Config, teacher: Config
) -> DistillationRecipe:
    """Return a built-in recipe with numbers of relation heads that divide both models' widths."""
    # The recipe's numbers suit the models of its paper; other widths get the next smaller divisor.
    # A user's recipe, which has no name, stays as it is.
    widths = [getattr(config, "hidden_size", 0) for config in (student, teacher)]
    if not recipe.name or not all(widths):
        return recipe
    terms, width = dict(recipe.terms), math.gcd(*widths)
    for name, term in recipe.terms.items():
        most = term.relation_heads
        if most is not None and width % most:
            heads = max(number for number in range(1, most) if width % number == 0)
            LOG.info(
                "terms.%s.relation_heads is %d: %d does not divide both widths", name, heads, most
            )
            terms[name] = msgspec.structs.replace(term, relation_heads=heads)
    return msgspec.structs.replace(recipe, terms=terms)


def text_settings(recipe: DistillationRecipe, longest: int) -> ConfigDict:
    """Return a recipe's settings for text, with rows of at most ``longest`` tokens."""
    settings = {**MICRO_BATCH, **recipe.settings}
    if not {"max_steps", "num_train_epochs"} & {*settings}:
        settings = {**TEXT_SCHEDULE, **settings}
    if "seq_len" in settings:
        settings["seq_len"] = min(settings["seq_len"], longest)
    return settings


def without_relative(settings: ConfigDict, others: Mapping[str, Any]) -> ConfigDict:
    """Drop numbers of epochs and shares of steps if other settings give numbers of steps."""
    replaced = {
        "num_train_epochs": "max_steps" in others,
        "warmup_ratio": "warmup_steps" in (others.get("lr_scheduler") or {}),
    }
    return {name: value for name, value in settings.items() if not replaced.get(name)}


def with_requested_kinds(
    recipe: DistillationRecipe, requested: Mapping[str, Any]
) -> DistillationRecipe:
    """Reset all fields of terms whose kind the settings change, except for the weight."""
    terms = (requested.get("distillation") or {}).get("terms") or {}
    kinds = {
        name: term["kind"]
        for name, term in terms.items()
        if isinstance(term, Mapping) and term.get("kind") in loss_names()
    }
    changed = {
        name: Term(kind=kinds[name], weight=term.weight)
        if kinds.get(name, term.kind) != term.kind
        else term
        for name, term in recipe.terms.items()
    }
    return msgspec.structs.replace(recipe, terms=changed)


def squared_error_of(term: Term) -> Term:
    """Turn a KL divergence into a squared error of logits; other terms stay as they are."""
    return Term(kind="logits-mse", weight=term.weight) if term.kind == "kl" else term
