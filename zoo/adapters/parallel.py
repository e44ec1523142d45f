"""Adapters next to the feed-forward network (He et al. 2022, arXiv:2110.04366)."""

from typing import TYPE_CHECKING, ClassVar

from zoo.adapters.bottleneck import FFN, BottleneckMethod, NonLinearity
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import nn

    from zoo.adapted_models.targets import Site


class Parallel(BottleneckMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bottlenecks that read what the feed-forward network of each block reads."""

    name: ClassVar[str] = "parallel"
    places: ClassVar[tuple[str, ...]] = FFN

    # both as in AdapterHub's library
    reduction_factor: int = 2  # the network has the model's width, divided by this, units between
    scaling: float = 4.0  # factor of its output
    non_linearity: NonLinearity = "relu"  # activation function of the network

    @override
    def add_after(self, model: "nn.Module", site: "Site") -> None:
        from zoo.nn.adapters import attach_beside

        attach_beside(model.get_submodule(site.module.rpartition(".")[0]), self.network(site))
