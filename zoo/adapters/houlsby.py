"""Adapters after attention and feed-forward network (Houlsby et al. 2019, arXiv:1902.00751)."""

from typing import ClassVar

from zoo.adapters.bottleneck import ATTENTION, FFN, BottleneckMethod, NonLinearity


class Houlsby(BottleneckMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bottlenecks after attention and feed-forward network of each block."""

    name: ClassVar[str] = "houlsby"
    places: ClassVar[tuple[str, ...]] = (*ATTENTION, *FFN)

    non_linearity: NonLinearity = "silu"  # activation function of the network
