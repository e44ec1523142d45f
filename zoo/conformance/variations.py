"""Configurations that reach the branches of a family which its defaults do not reach."""

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from zoo.errors import ZooError
from zoo.families.base import Family

MAX_WORDS = 4  # values of a field that are all tried; of longer lists, those of ``FREQUENT_WORDS``
FREQUENT_WORDS = ("relu", "gelu_new", "tanh")
MAX_FREQUENT_WORDS = 2
EPSILON = 0.1  # so large that it changes outputs
TOKEN_IDS = (5, 6)
# fields that the Hub's configurations do not have, or that change no output in evaluation
UNTRIED_FIELDS = ("mix", "pooling", "sentence_head", "problem", "vocab_size")
UNTRIED_ENDINGS = ("dropout", "_range")


def field_changes(family: Family, config: Any) -> list[dict[str, Any]]:
    """Return changes of a configuration, of one field each, that a ``config.json`` can have."""
    changes = []
    for field in msgspec.structs.fields(config):
        if field.name in UNTRIED_FIELDS or field.name.endswith(UNTRIED_ENDINGS):
            continue
        value = getattr(config, field.name)
        for other_value in other_values(field.name, field.type, value):
            change = {field.name: other_value}
            if _is_accepted(family, config, change):
                changes.append(change)
    return changes


def _is_accepted(family: Family, config: Any, change: Mapping[str, Any]) -> bool:
    """Return whether a family accepts a changed configuration, and can write and read it."""
    try:
        changed = msgspec.structs.replace(config, **change)
        return bool(family.from_hub(family.to_hub(changed)).config == changed)
    except (ValueError, TypeError, ZooError):
        return False


def other_values(name: str, field_type: Any, value: Any) -> Iterator[Any]:
    """Yield values of a field that a branch may depend on."""
    options = _options(field_type)
    words = [option for option in options if isinstance(option, str) and option != value]
    if len(words) > MAX_WORDS:
        words = [word for word in FREQUENT_WORDS if word in words][:MAX_FREQUENT_WORDS]
    yield from words
    if value is not None and type(None) in options:
        yield None
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, float):
        yield EPSILON if name.endswith("eps") else value / 2
    elif isinstance(value, int):
        yield from _other_numbers(name, value)
    elif name == "labels":
        yield ("one",)


def _other_numbers(name: str, value: int) -> Iterator[int]:
    """Yield values of a whole number: the smallest ones, or the half."""
    if name.endswith("_token_id"):
        yield next(number for number in TOKEN_IDS if number != value)
    elif name == "type_vocab_size":
        yield from (number for number in (1, 3) if number != value)
    elif name in ("num_heads", "num_kv_heads", "num_layers"):
        yield 2 if value == 1 else 1
    elif name == "embedding_size":
        yield value // 2
        yield 2 * value
    elif value > 1:
        yield value // 2


def _options(field_type: Any) -> list[Any]:
    """Return the types and the literals that a field may have."""
    origin = typing.get_origin(field_type)
    if origin is Literal:
        return list(typing.get_args(field_type))
    if origin in (typing.Union, types.UnionType):
        options = []
        for member in typing.get_args(field_type):
            options += _options(member)
        return options
    return [field_type]


def describe_changes(changes: Mapping[str, Any]) -> str:
    """Return the changes of a configuration as ``name value, name value``."""
    return ", ".join(f"{name} {value!r}" for name, value in changes.items())
