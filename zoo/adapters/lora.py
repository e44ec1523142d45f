"""LoRA (Hu et al. 2021, arXiv:2106.09685) and DoRA (Liu et al. 2024, arXiv:2402.09353)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from zoo.adapted_models.base import AdapterMethod, check_positive, check_sizes
from zoo.adapted_models.targets import list_names
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import nn

    from zoo.adapted_models.targets import AdaptableModel
    from zoo.nn.adapters import DoRAAdapter, LoRAAdapter


class LoRA(AdapterMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank updates of linear maps."""

    name: ClassVar[str] = "lora"
    # table 9, the smaller encoder on GLUE
    defaults: ClassVar[Mapping[str, Any]] = {
        "optimizer": {"learning_rate": 5e-4, "layerwise_lr_decay": 1.0},
        "warmup_ratio": 0.06,
    }

    rank: int = 8  # rank of the updates
    alpha: float = 8.0  # an update is multiplied by ``alpha / rank``
    use_rslora: bool = False  # by ``alpha / sqrt(rank)`` instead (arXiv:2312.03732)
    dropout: float = 0.0  # dropout probability of the inputs of the updates
    # linear maps by the Hub's names, or the last parts of them; ``all-linear`` for all outside of
    # the head; ``None`` for the family's default
    target_modules: tuple[str, ...] | str | None = None

    def __post_init__(self) -> None:
        check_sizes(self, "rank")
        check_positive(self, "alpha")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, which is not in [0, 1)")

    @property
    def scaling(self) -> float:
        """Factor of the updates."""
        divisor: float = self.rank
        if self.use_rslora:
            divisor = self.rank**0.5
        return self.alpha / divisor

    def layer_type(self) -> "type[LoRAAdapter]":
        """Return the class of the layers."""
        from zoo.nn.adapters import LoRAAdapter

        return LoRAAdapter

    @override
    def resolved(self, adaptable: "AdaptableModel") -> Self:
        targets = adaptable.select(self.target_modules, adaptable.targets.low_rank)
        return msgspec.structs.replace(self, target_modules=targets)

    @override
    def add_to(self, model: "nn.Module", adaptable: "AdaptableModel") -> None:
        from zoo.nn.adapters import attach_adapter

        for site in adaptable.find_sites(list_names(self.resolved(adaptable).target_modules)):
            size, width = site.entry.shape
            layer = self.layer_type()(
                site.rows, size, width, rank=self.rank, scaling=self.scaling, dropout=self.dropout
            )
            attach_adapter(model.get_submodule(site.module), layer)


class DoRA(LoRA, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank updates of the directions of rows, and learned lengths of rows."""

    name: ClassVar[str] = "dora"

    @override
    def layer_type(self) -> "type[DoRAAdapter]":
        from zoo.nn.adapters import DoRAAdapter

        return DoRAAdapter
