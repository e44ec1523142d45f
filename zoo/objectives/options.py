"""Options of an objective or task, and their conversion from settings."""

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from zoo.errors import UsageError, did_you_mean


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the options of an objective."""

    def check_fraction(self, name: str, *, ends: bool = False) -> None:
        """Check that a field is a fraction.

        Args:
            name: name of the field.
            ends: accept 0 and 1.

        Raises:
            ValueError: the value is not between 0 and 1.
        """
        value = getattr(self, name)
        if not (0 < value < 1 or (ends and value in (0, 1))):
            raise ValueError(f"{name} is {value}, which is not between 0 and 1")


def choices(field_type: Any) -> tuple[str, ...]:
    """Return the words that a field takes; none where it takes any text, or no text."""
    if get_origin(field_type) is Literal:
        return tuple(word for word in get_args(field_type) if isinstance(word, str))
    if get_origin(field_type) not in (Union, UnionType) or str in get_args(field_type):
        return ()
    words: list[str] = []
    for member_type in get_args(field_type):
        words.extend(choices(member_type))
    return tuple(words)


def check_choice(value: Any, field_type: Any, location: str) -> None:
    """Check that a word is one that a field takes."""
    words = choices(field_type)
    if words and isinstance(value, str) and value not in words:
        raise UsageError(
            f"{location} is {value!r}",
            did_you_mean(value, words) or f"it is one of {', '.join(words)}",
        )


def parse_options(
    options_type: type[Options],
    values: Mapping[str, Any],
    name: str,
    noun: str = "objective",
    *,
    other_names: Sequence[str] = (),
) -> Options:
    """Convert options of an objective or task to their type.

    Args:
        options_type: type of the options.
        values: the options.
        name: name of the objective or task, for messages.
        noun: ``objective`` or ``task``.
        other_names: names of options that are parsed elsewhere, for messages.
    """
    option_names = [field.encode_name for field in msgspec.structs.fields(options_type)]
    for option in values:
        if option not in option_names:
            suggestions = [*option_names, *other_names]
            raise UsageError(
                f"the {noun} {name} has no option {option!r}",
                did_you_mean(option, suggestions) or f"it has {', '.join(suggestions) or 'none'}",
            )
    for field in msgspec.structs.fields(options_type):
        value = values.get(field.encode_name)
        check_choice(value, field.type, f"the {noun} {name}: {field.encode_name}")
    try:
        return msgspec.convert(dict(values), options_type)
    except (msgspec.ValidationError, ValueError) as error:
        raise option_error(error, name, noun) from error


def option_error(error: Exception, name: str, noun: str) -> UsageError:
    """Return the error for an option with a wrong type or value, with its key in the settings.

    Args:
        error: the error of msgspec, or of ``__post_init__``.
        name: name of the objective or task.
        noun: ``objective`` or ``task``.
    """
    message, _, location = str(error).partition(" - at `$.")
    if location:
        key = location.removesuffix("`")
        message = f"{noun}_args.{key}: {message}"
    return UsageError(f"the {noun} {name}: {message}")
