"""The terms of recipes and configurations: tables of settings, checked by their losses.

A table has the name of a loss as ``kind``, the ``weight`` in the total loss, by default 1, and
settings of the loss.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.distillation.losses import DISTILLATION_LOSSES, loss_types
from zoo.errors import UsageError, did_you_mean
from zoo.families.distillation import DistillationRecipe, Stage, Terms
from zoo.objectives.options import check_choice
from zoo.training.config.overrides import with_location

if TYPE_CHECKING:
    from zoo.distillation.losses.base import DistillationLoss, Term

Table = dict[str, Any]
KIND = "kind"
WEIGHT = "weight"
DEFAULT_WEIGHT = 1.0


def parse_term(name: str, table: Mapping[str, Any], path: str, *, recorded: bool = False) -> "Term":
    """Convert the table of a term.

    Args:
        name: name of the term.
        table: its settings.
        path: where it stands, for messages, such as ``distillation.terms.kl``.
        recorded: whether a run recorded the table. Older versions recorded the settings of all
            losses for each term; those of other losses are left out where they have their defaults.

    Raises:
        UsageError: there is no such loss, or a setting is unknown, of another loss or wrong.
    """
    from zoo.distillation.losses.base import Term

    if KIND not in table:
        raise UsageError(f"{path} has no {KIND}", "name a loss")
    _require_loss(table[KIND], f"{path}.{KIND}")
    loss = DISTILLATION_LOSSES.find(table[KIND])
    settings = {key: value for key, value in table.items() if key not in (KIND, WEIGHT)}
    if recorded:
        settings = _without_defaults_of_other_losses(settings, loss)
    return Term(
        name=name,
        loss=loss,
        weight=_parse_weight(table.get(WEIGHT, DEFAULT_WEIGHT), path),
        settings=_parse_settings(settings, loss, path),
    )


def _require_loss(name: Any, setting: str) -> None:
    """Check that the value of a setting is the name of a loss."""
    names = DISTILLATION_LOSSES.names()
    if name not in names:
        hint = did_you_mean(str(name), names) or f"there are {', '.join(names)}"
        raise UsageError(f"{setting} is {name!r}, which is not a distillation loss", hint)


def _parse_weight(value: Any, path: str) -> float:
    try:
        weight = msgspec.convert(value, float)
    except msgspec.ValidationError as error:
        raise UsageError(with_location(error, f"{path}.{WEIGHT}")) from error
    if not 0 <= weight < math.inf:
        raise UsageError(f"{path}: weight is {weight}, not 0 or more and finite")
    return weight


def _parse_settings(settings: Table, loss: "type[DistillationLoss]", path: str) -> Any:
    fields = {field.name: field for field in msgspec.structs.fields(loss.settings_type)}
    for key, value in settings.items():
        if key not in fields:
            raise _unknown_setting(key, value, loss, path)
        check_choice(value, fields[key].type, f"{path}.{key}")
    try:
        return msgspec.convert(settings, loss.settings_type)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise UsageError(with_location(error, path)) from error


def _unknown_setting(key: str, value: Any, loss: "type[DistillationLoss]", path: str) -> UsageError:
    """Return the error for a setting that a loss does not have."""
    readers = [other.name for other in loss_types() if key in other.setting_names()]
    if readers:
        return UsageError(
            f"{path}.{key} is {value!r}, which {loss.name} does not read",
            f"leave it out; it is a setting of {', '.join(readers)}",
        )
    names = [KIND, WEIGHT, *loss.setting_names()]
    return UsageError(
        f"there is no setting {path}.{key}",
        did_you_mean(key, names) or f"{loss.name} has {', '.join(names)}",
    )


def _without_defaults_of_other_losses(settings: Table, loss: "type[DistillationLoss]") -> Table:
    own = loss.setting_names()
    return {
        key: value
        for key, value in settings.items()
        if key in own or not _is_default_elsewhere(key, value)
    }


def _is_default_elsewhere(key: str, value: Any) -> bool:
    """Return whether a value is the default of a setting that a built-in loss has."""
    for name in DISTILLATION_LOSSES.built_in:
        settings_type = DISTILLATION_LOSSES.find(name).settings_type
        for field in msgspec.structs.fields(settings_type):
            if field.name == key and _with_lists(field.default) == value:
                return True
    return False


def term_table(term: "Term", *, defaults: bool = True) -> Table:
    """Return the table of a term, with or without the settings that have their defaults."""
    table: Table = {KIND: term.loss.name}
    if defaults or term.weight != DEFAULT_WEIGHT:
        table[WEIGHT] = term.weight
    for field in msgspec.structs.fields(term.settings):
        value = getattr(term.settings, field.name)
        if defaults or field.required or value != _default(field):
            table[field.name] = _with_lists(msgspec.to_builtins(value))
    return table


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _with_lists(value: Any) -> Any:
    """Return a value with lists in place of tuples, as a file has it."""
    if isinstance(value, list | tuple):
        return [_with_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in value.items()}
    return value


def parse_terms(tables: Terms, prefix: str = "", *, recorded: bool = False) -> "list[Term]":
    """Convert the terms of a recipe or a configuration; see ``parse_term``."""
    return [
        parse_term(name, table, f"{prefix}terms.{name}", recorded=recorded)
        for name, table in tables.items()
    ]


def checked_terms(
    tables: Terms,
    prefix: str = "",
    *,
    recorded: bool = False,
    defaults: bool = True,
) -> Terms:
    """Return the tables of terms with all their settings, or only those without defaults."""
    terms = parse_terms(tables, prefix, recorded=recorded)
    return {term.name: term_table(term, defaults=defaults) for term in terms}


def checked_recipe(
    recipe: DistillationRecipe,
    prefix: str = "",
    *,
    recorded: bool = False,
    defaults: bool = True,
) -> DistillationRecipe:
    """Return a recipe whose terms have all their settings, or only those without defaults.

    Args:
        recipe: the recipe, whose terms are not checked yet.
        prefix: where it stands, for messages, such as ``mine.yaml: ``.
        recorded: see ``parse_term``.
        defaults: whether settings with their defaults are kept.

    Raises:
        UsageError: a term is wrong.
    """

    def checked(tables: Terms, place: str) -> Terms:
        return checked_terms(tables, place, recorded=recorded, defaults=defaults)

    stages: dict[str, Stage] = {}
    for name, stage in recipe.stages.items():
        terms = checked(stage.terms, f"{prefix}stages.{name}.")
        stages[name] = msgspec.structs.replace(stage, terms=terms)
    return msgspec.structs.replace(recipe, terms=checked(recipe.terms, prefix), stages=stages)


def change_terms(
    recipe: DistillationRecipe, change: "Callable[[Term], Term]"
) -> DistillationRecipe:
    """Return a recipe with each of its terms changed."""
    terms: Terms = {}
    for term in parse_terms(recipe.terms):
        new_term = change(term)
        terms[new_term.name] = term_table(new_term)
    return msgspec.structs.replace(recipe, terms=terms)


def without_changed_kinds(tables: Terms, changes: Any) -> Terms:
    """Reset the terms whose loss a user's settings change: only the weight is kept.

    Args:
        tables: terms by name.
        changes: the user's settings of the terms, which may be wrong.
    """
    requested = changes if isinstance(changes, Mapping) else {}
    terms: Terms = {}
    for name, table in tables.items():
        change = requested.get(name)
        loss_name = change.get(KIND) if isinstance(change, Mapping) else None
        if loss_name in (None, table[KIND]):
            terms[name] = table
            continue
        terms[name] = {KIND: loss_name, WEIGHT: table.get(WEIGHT, DEFAULT_WEIGHT)}
    return terms
