"""DoRA (Liu et al. 2024, arXiv:2402.09353)."""

from typing import TYPE_CHECKING, ClassVar

from zoo.adapters.lora import LoRA
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.nn.adapters import DoRAAdapter


class DoRA(LoRA, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank updates of the directions of rows, and learned lengths of rows."""

    name: ClassVar[str] = "dora"

    @override
    def layer_type(self) -> "type[DoRAAdapter]":
        from zoo.nn.adapters import DoRAAdapter

        return DoRAAdapter
