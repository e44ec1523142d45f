"""Bottleneck adapters; settings are called as in AdapterHub's library."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from zoo.adapted_models.base import AdapterMethod, check_positive, check_sizes
from zoo.errors import UsageError
from zoo.overrides import override

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from zoo.adapted_models.targets import AdaptableModel, Site
    from zoo.nn.adapters import Bottleneck

NonLinearity = Literal["gelu", "gelu_new", "leaky_relu", "relu", "silu", "swish", "tanh"]
ATTENTION = (".attention.out", ".cross.out")
FFN = (".ffn.down",)


class BottleneckMethod(AdapterMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of adapters with a small feed-forward network."""

    can_merge: ClassVar[bool] = False
    places: ClassVar[tuple[str, ...]]  # ends of the names of the linear maps that one follows
    defaults: ClassVar[Mapping[str, Any]] = {
        "optimizer": {"learning_rate": 1e-3, "layerwise_lr_decay": 1.0},
        "warmup_ratio": 0.06,
    }

    reduction_factor: int = 16  # the network has the model's width, divided by this, units between
    scaling: float = 1.0  # factor of its output

    def __post_init__(self) -> None:
        check_sizes(self, "reduction_factor")
        check_positive(self, "scaling")

    @property
    def act(self) -> str:
        """Name of the activation function, which is a setting of each method."""
        return str(getattr(self, "non_linearity"))  # noqa: B009 (a field of subclasses)

    def sites(self, adaptable: "AdaptableModel") -> "Sequence[Site]":
        """Return the linear maps that a bottleneck follows."""
        sites = [site for site in adaptable.sites if f".{site.module}".endswith(self.places)]
        if not sites:
            raise UsageError(
                f"models of {adaptable.family.name} have no Transformer blocks, after whose parts "
                f"an adapter of {self.name} is",
                "choose another --adapter",
            )
        width = sites[0].entry.shape[0]
        if width < self.reduction_factor:
            raise UsageError(
                f"adapter.reduction_factor is {self.reduction_factor}, and the model has a width "
                f"of {width}",
                f"--set adapter.reduction_factor={max(1, width // 8)}",
            )
        return sites

    def network(self, site: "Site") -> "Bottleneck":
        """Return the network of a linear map, for those that are not its adapter."""
        from zoo.nn.adapters import Bottleneck

        width = site.entry.shape[0]
        size = width // self.reduction_factor
        return Bottleneck(width, size, act=self.act, scaling=self.scaling)

    @override
    def resolved(self, adaptable: "AdaptableModel") -> Self:
        self.sites(adaptable)
        return self

    @override
    def add_to(self, model: "nn.Module", adaptable: "AdaptableModel") -> None:
        for site in self.sites(adaptable):
            self.add_after(model, site)

    def add_after(self, model: "nn.Module", site: "Site") -> None:
        """Add the network after a linear map."""
        from zoo.nn.adapters import BottleneckAdapter, attach_adapter

        width = site.entry.shape[0]
        layer = BottleneckAdapter(
            width, width // self.reduction_factor, act=self.act, scaling=self.scaling
        )
        attach_adapter(model.get_submodule(site.module), layer)


class Houlsby(BottleneckMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bottlenecks after attention and feed-forward network of each block.

    Houlsby et al. 2019, arXiv:1902.00751.
    """

    name: ClassVar[str] = "houlsby"
    places: ClassVar[tuple[str, ...]] = (*ATTENTION, *FFN)

    non_linearity: NonLinearity = "silu"  # activation function of the network


class Pfeiffer(BottleneckMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bottlenecks after the feed-forward network of each block.

    Pfeiffer et al. 2020, arXiv:2005.00247.
    """

    name: ClassVar[str] = "pfeiffer"
    places: ClassVar[tuple[str, ...]] = FFN

    non_linearity: NonLinearity = "relu"  # activation function of the network

    @override
    def add_after(self, model: "nn.Module", site: "Site") -> None:
        from torch import nn

        from zoo.nn.adapters import AdaptedNorm, attach_to_norm
        from zoo.nn.encoder_decoder import PreNormDecoderBlock
        from zoo.nn.transformer import PostNormBlock, PreNormBlock

        block = model.get_submodule(site.module.removesuffix(FFN[0]))
        has_norm_first = isinstance(block, PreNormBlock | PreNormDecoderBlock)
        norm = None
        if isinstance(block, PostNormBlock) and not has_norm_first:
            norm = block.ffn_norm
        if type(norm) not in (nn.LayerNorm, AdaptedNorm):
            super().add_after(model, site)
            return
        attach_to_norm(cast(nn.Module, norm), self.network(site))


class Parallel(BottleneckMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bottlenecks that read what the feed-forward network of each block reads.

    He et al. 2022, arXiv:2110.04366.
    """

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
