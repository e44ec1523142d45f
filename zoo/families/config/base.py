"""The base class of configurations: frozen structs that validate their fields."""

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from zoo.io import limits
from zoo.io.sizes import size_problem

Problem = Literal["single_label_classification", "multi_label_classification", "regression"]
# as in transformers, and in ``zoo.nn.layers.activations``
Activation = Literal[
    "gelu",
    "gelu_10",
    "gelu_accurate",
    "gelu_fast",
    "gelu_new",
    "gelu_python",
    "gelu_python_tanh",
    "gelu_pytorch_tanh",
    "hardswish",
    "laplace",
    "leaky_relu",
    "linear",
    "mish",
    "quick_gelu",
    "relu",
    "relu2",
    "relu6",
    "sigmoid",
    "silu",
    "sqrtsoftplus",
    "swish",
    "tanh",
]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of every family's configuration.

    The range of a number follows from its name and default: see ``field_error``. A field whose
    name ends in ``_token_id`` is a token of the vocabulary. Without ``head_size``, ``num_heads``
    has to divide ``hidden_size``.

    Attributes:
        vocab_size: number of tokens in the vocabulary.
        labels: names of a classifier's outputs, in order.
        problem: the kind of problem that a sequence classifier was trained for.
    """

    vocab_size: int
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    problem: Problem | None = None

    @property
    def problem_type(self) -> Problem:
        """The kind of problem; where none is stated, the one that transformers infers."""
        if self.problem is not None:
            return self.problem
        return "regression" if len(self.labels) == 1 else "single_label_classification"

    def __post_init__(self) -> None:
        """Validate the fields. A family with further conditions extends this."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        for field in msgspec.structs.fields(self):
            if error := field_error(field, values[field.name]):
                raise ValueError(f"{field.name} is {values[field.name]}, which is {error}")
        tokens = {name: values[name] for name in values if name.endswith("_token_id")}
        for name, token in tokens.items():
            if token is not None and not 0 <= token < self.vocab_size:
                raise ValueError(f"{name} {token} is outside the vocabulary of {self.vocab_size}")
        count = len(self.labels)
        problem = size_problem("number of labels", count, limits.MAX_CONFIG_LABELS, least=1)
        if problem is not None:
            raise ValueError(problem)
        width = values.get("hidden_size")
        heads = values.get("num_heads")
        if width and heads and "head_size" not in values and width % heads:
            raise ValueError(f"hidden_size {width} does not split into num_heads {heads}")
        shared = values.get("num_kv_heads")
        if heads and shared and heads % shared:
            raise ValueError(f"num_heads {heads} is not a multiple of num_kv_heads {shared}")

    def refuse(self, errors: Mapping[str, bool]) -> None:
        """Raise the first of several errors whose condition is true.

        Args:
            errors: message -> whether it applies.

        Raises:
            ValueError: one applies.
        """
        for message in (message for message, applies in errors.items() if applies):
            raise ValueError(message)


AnyConfig = TypeVar("AnyConfig", bound=Config)


def upper_bound(name: str) -> int:
    """Return the largest value of a numeric field."""
    # The bound is lower for fields that count layers, heads and the like, which loops run over.
    counts = name.startswith(("num_", "blocks_")) or name.endswith("layers")
    return limits.MAX_CONFIG_COUNT if counts else limits.MAX_CONFIG_NUMBER


def field_error(field: msgspec.structs.FieldInfo, value: Any) -> str:
    """Return the error of a numeric field; empty for a valid number or another type."""
    # A field whose name ends in ``dropout`` is a probability below 1. Tokens are checked against
    # the vocabulary elsewhere. All others are sizes, and positive, unless the default is zero or
    # negative, which then means "none" and is the smallest value, or the type has a smallest value
    # (``Annotated[int, msgspec.Meta(ge=0)]``).
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
    for bound in getattr(field.type, "__metadata__", ()):
        if isinstance(bound, msgspec.Meta) and bound.ge is not None:
            return "" if value >= bound.ge else f"less than {bound.ge}"
    return "" if value > 0 else "not positive"  # also refuses NaN
