"""Base class of adapter methods. Importing it imports no torch."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from zoo.io.limits import MAX_ADAPTER_SIZE
from zoo.io.sizes import size_problem

if TYPE_CHECKING:
    from torch import nn

    from zoo.adapted_models.targets import AdaptableModel


class AdapterMethod(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A method, whose fields are its settings.

    Attributes:
        name: value of ``--adapter``.
        defaults: settings of a run that fit the method, unless a run has others.
        can_merge: whether the changed model is one without an adapter again.
        supports_packed_documents: whether rows may hold several documents, as in pretraining.
    """

    name: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]] = {}
    can_merge: ClassVar[bool] = True
    supports_packed_documents: ClassVar[bool] = True

    def shortened(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Return the largest sizes of a model's inputs, by axis, next to the adapter.

        Args:
            limits: those of the model without it; see ``OnnxSpec``.
        """
        return dict(limits)

    @abstractmethod
    def resolved(self, adaptable: "AdaptableModel") -> Self:
        """Return the method with the settings that follow from a model, such as its targets.

        Raises:
            UsageError: the model has no part that a setting names.
        """

    @abstractmethod
    def add_to(self, model: "nn.Module", adaptable: "AdaptableModel") -> None:
        """Add the adapter to a model, in place.

        Args:
            model: the model, with the weights of its base.
            adaptable: what the method may change.

        Raises:
            UsageError: see ``resolved``.
        """


def check_sizes(method: msgspec.Struct, *names: str) -> None:
    """Check that settings are sizes that an adapter can have; raises ``ValueError``."""
    for name in names:
        problem = size_problem(name, getattr(method, name), MAX_ADAPTER_SIZE, least=1)
        if problem is not None:
            raise ValueError(problem)


def check_positive(method: msgspec.Struct, *names: str) -> None:
    """Check that factors are above 0 and finite; raises ``ValueError``."""
    for name in names:
        if not 0 < getattr(method, name) < math.inf:
            raise ValueError(f"{name} is {getattr(method, name)}, not positive")
