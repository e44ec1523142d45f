"""Configurations: small frozen records, which cannot hold a shape that makes no sense."""

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from zoo.io import limits

Problem = Literal["single_label_classification", "multi_label_classification", "regression"]
Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh"]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every family's configuration.

    The names and defaults of fields say their ranges: see ``fault``. A field that ends in
    ``_token_id`` is a token of the vocabulary. Where there is no ``head_size``, ``num_heads``
    share ``hidden_size``.

    Attributes:
        vocab_size: rows of the token embedding.
        labels: names of a classification head's outputs, in order.
        problem: what a sequence classification head was trained for.
    """

    vocab_size: int
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    problem: Problem | None = None

    def __post_init__(self) -> None:
        """Refuse a shape that cannot be built. A family with more to refuse extends this.

        Raises:
            ValueError: a field is out of its range, or two contradict each other.
        """
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        for field in msgspec.structs.fields(self):
            if wrong := field_error(field, given[field.name]):
                raise ValueError(f"{field.name} is {given[field.name]}, which is {wrong}")
        tokens = {name: given[name] for name in given if name.endswith("_token_id")}
        for name, token in tokens.items():
            if token is not None and not 0 <= token < self.vocab_size:
                raise ValueError(f"{name} {token} is outside the vocabulary of {self.vocab_size}")
        if not self.labels:
            raise ValueError("labels are none at all")
        if len(self.labels) > limits.CONFIG_LABELS:
            raise ValueError(f"labels are {len(self.labels):,}, over {limits.CONFIG_LABELS:,}")
        width, heads = given.get("hidden_size"), given.get("num_heads")
        if width and heads and "head_size" not in given and width % heads:
            raise ValueError(f"hidden_size {width} does not split into num_heads {heads}")

    def refuse(self, wrong: Mapping[str, bool]) -> None:
        """Refuse what cannot be built.

        Args:
            wrong: what is wrong -> whether it is.

        Raises:
            ValueError: something is; it says the first.
        """
        for what in (what for what, found in wrong.items() if found):
            raise ValueError(what)


AnyConfig = TypeVar("AnyConfig", bound=Config)


def upper_bound(name: str) -> int:
    """Return the largest number that a field of this name may have.

    Fields that count layers, heads, groups and the like are those that loops run over.
    """
    counts = name.startswith(("num_", "blocks_")) or name.endswith("layers")
    return limits.CONFIG_COUNT if counts else limits.CONFIG_NUMBER


def field_error(field: msgspec.structs.FieldInfo, value: Any) -> str:
    """Say what is wrong with a number; nothing is with what is no number.

    A field that ends in ``dropout`` is a probability of less than 1, and of tokens the vocabulary
    says what they may be. All others are sizes and their like, and positive, unless their default
    is not: then it stands for nothing there, and is the least.

    Args:
        field: whose value it is.
        value: of the right type.

    Returns:
        what the value is instead, or nothing.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or field.name.endswith("_token_id"):
        return ""
    if isinstance(value, float) and math.isinf(value):
        return "not finite"
    if value > (most := upper_bound(field.name)):
        return f"over {most:,}"
    if field.name.endswith("dropout"):
        return "" if 0 <= value < 1 else "not in [0, 1)"
    if isinstance(field.default, int | float) and field.default <= 0:
        return "" if value >= field.default else f"less than {field.default}"
    return "" if value > 0 else "not positive"  # which refuses NaN, too
