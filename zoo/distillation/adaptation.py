"""Adaptation of recipes and settings to the data and the models of a run."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.data.readers.glue import PREFIX, glue_task
from zoo.distillation.term_tables import change_terms, parse_term
from zoo.errors import UsageError
from zoo.families.config import Config
from zoo.families.distillation import SENTENCES, TEXT_SCHEDULE, DistillationRecipe
from zoo.plugins.tasks import training_task
from zoo.training.config.overrides import ConfigDict

if TYPE_CHECKING:
    from zoo.distillation.losses.base import Term

LOG = logging.getLogger("zoo")
# Settings of runs on text that runs on labelled data do not have.
TEXT_SETTINGS = (
    "objective_args",
    "global_batch_tokens",
    "micro_batch_tokens",
    "seq_len",
    "seq_len_warmup",
)
SCHEDULE_SETTINGS = ("max_steps", "num_train_epochs", "warmup_ratio", "lr_scheduler")
# The logits of two models for all tokens take much memory.
MICRO_BATCH = {"micro_batch_tokens": 4096}


def adapt_to_data(recipe: DistillationRecipe, task: str | None) -> DistillationRecipe:
    """Return a recipe adapted to the data of a run.

    Args:
        recipe: the recipe, without stages.
        task: the task on labelled data; ``None`` for text.

    Returns:
        the recipe; for a task, without settings of text, and with losses that suit its outputs.

    Raises:
        UsageError: the recipe is for other data.
    """
    _require_suitable_data(recipe, task)
    if task is None:
        return recipe
    problem = _problem_type(task)
    recipe = msgspec.structs.replace(recipe, settings=_settings_for_task(recipe))
    return change_terms(recipe, lambda term: _term_for_task(term, problem, recipe))


def _require_suitable_data(recipe: DistillationRecipe, task: str | None) -> None:
    """Check that a recipe is for the data of a run."""
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


def _problem_type(task: str) -> str | None:
    """Return the problem type of a task, which may be one of GLUE's."""
    task_name = glue_task(task).task if task.startswith(PREFIX) else task
    problem: str | None = training_task(task_name).problem
    return problem


def _settings_for_task(recipe: DistillationRecipe) -> ConfigDict:
    """Return the settings of a recipe that runs on labelled data have."""
    excluded = set(TEXT_SETTINGS)
    if recipe.is_published and recipe.data == "any":  # Its schedule was made for text.
        excluded.update(SCHEDULE_SETTINGS)
    return {name: value for name, value in recipe.settings.items() if name not in excluded}


def _term_for_task(term: "Term", problem: str | None, recipe: DistillationRecipe) -> "Term":
    """Return a term with settings for labelled data, or the loss that takes its place."""
    substitute = term.loss.substitute(problem)
    if substitute is None:
        return replace(term, settings=term.loss.settings_for_task(term.settings))
    name = term.name
    # A term that is called by its loss takes the name of the new one, unless another has it.
    if name == term.loss.name and substitute.term_name not in recipe.terms:
        name = substitute.term_name
    table = {"kind": substitute.loss_name, "weight": term.weight}
    return parse_term(name, table, f"terms.{name}")


def adapt_to_widths(
    recipe: DistillationRecipe, student: Config, teacher: Config
) -> DistillationRecipe:
    """Return a published recipe with settings of losses that suit the widths of both models.

    The settings suit the models of the paper. A user's recipe, which has no name, stays as it is.
    """
    widths = [getattr(config, "hidden_size", 0) for config in (student, teacher)]
    if not recipe.is_published or not all(widths):
        return recipe
    return change_terms(recipe, lambda term: _term_for_widths(term, widths))


def _term_for_widths(term: "Term", widths: list[int]) -> "Term":
    """Return a term with settings that suit the widths of both models."""
    settings = term.loss.settings_for_widths(term.settings, widths)
    for name in term.loss.setting_names():
        published = getattr(term.settings, name)
        value = getattr(settings, name)
        if value != published:
            LOG.info(
                "terms.%s.%s is %s: %s does not suit the widths %d and %d of the models",
                term.name,
                name,
                value,
                published,
                *widths,
            )
    return replace(term, settings=settings)


def text_settings(recipe: DistillationRecipe, longest: int) -> ConfigDict:
    """Return a recipe's settings for text, with rows of at most ``longest`` tokens."""
    settings = {**MICRO_BATCH, **recipe.settings}
    if "max_steps" not in settings and "num_train_epochs" not in settings:
        settings = {**TEXT_SCHEDULE, **settings}
    if "seq_len" in settings:
        settings["seq_len"] = min(settings["seq_len"], longest)
    return settings


def without_relative_lengths(settings: ConfigDict, overrides: Mapping[str, Any]) -> ConfigDict:
    """Drop numbers of epochs and shares of steps that overrides replace by numbers of steps."""
    remaining = dict(settings)
    if "max_steps" in overrides:
        remaining.pop("num_train_epochs", None)
    schedule = overrides.get("lr_scheduler") or {}
    if "warmup_steps" in schedule:
        remaining.pop("warmup_ratio", None)
    return remaining
