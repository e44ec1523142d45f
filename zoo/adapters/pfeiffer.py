"""Adapters after the feed-forward network (Pfeiffer et al. 2020, arXiv:2005.00247)."""

from typing import TYPE_CHECKING, ClassVar, cast

from zoo.adapters.bottleneck import FFN, BottleneckMethod, NonLinearity
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import nn

    from zoo.adapted_models.targets import Site


class Pfeiffer(BottleneckMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bottlenecks after the feed-forward network of each block."""

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
        after = isinstance(block, PostNormBlock) and not isinstance(
            block, PreNormBlock | PreNormDecoderBlock
        )
        norm = block.ffn_norm if after else None
        if type(norm) not in (nn.LayerNorm, AdaptedNorm):
            super().add_after(model, site)
            return
        attach_to_norm(cast(nn.Module, norm), self.network(site))
