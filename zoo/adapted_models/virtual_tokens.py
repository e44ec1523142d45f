"""Adapters that put virtual tokens before each text."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self

from zoo.adapted_models.base import AdapterMethod, check_sizes
from zoo.errors import UsageError
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.adapted_models.targets import AdaptableModel

ROOM = 3  # the fewest positions that a text needs: two special tokens and one of its own


class VirtualTokens(AdapterMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of these methods."""

    can_merge: ClassVar[bool] = False
    supports_packed_documents: ClassVar[bool] = False

    num_virtual_tokens: int = 20  # number of virtual tokens

    def __post_init__(self) -> None:
        check_sizes(self, "num_virtual_tokens")

    def axis(self, limits: Mapping[str, int]) -> str:
        """Return the axis of the inputs that has less room."""
        return "tokens"

    @override
    def shortened(self, limits: Mapping[str, int]) -> dict[str, int]:
        axis = self.axis(limits)
        if limits.get(axis, ROOM + self.num_virtual_tokens) < ROOM + self.num_virtual_tokens:
            raise UsageError(
                f"adapter.num_virtual_tokens is {self.num_virtual_tokens}, and the model has "
                f"{limits[axis]} positions",
                f"--set adapter.num_virtual_tokens={max(1, limits[axis] // 8)}",
            )
        return {
            name: size - self.num_virtual_tokens if name == axis else size
            for name, size in limits.items()
        }

    @override
    def resolved(self, adaptable: "AdaptableModel") -> Self:
        self.shortened(adaptable.family.onnx(adaptable.config, adaptable.head).limits)
        return self
