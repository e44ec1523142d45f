"""Small trained parts of a frozen model: the layers of adapters.

A linear map gets a submodule ``adapter``, which computes the map and its change. The names of the
map's own parameters stay as they are.
"""

from zoo.nn.adapters.bottleneck import (
    AdaptedNorm,
    Bottleneck,
    BottleneckAdapter,
    attach_beside,
    attach_to_norm,
)
from zoo.nn.adapters.linear import AdaptedLinear, LinearAdapter, attach_adapter, can_adapt
from zoo.nn.adapters.low_rank import DoRAAdapter, LoRAAdapter
from zoo.nn.adapters.rescaling import IA3Adapter

__all__ = [
    "AdaptedLinear",
    "AdaptedNorm",
    "Bottleneck",
    "BottleneckAdapter",
    "DoRAAdapter",
    "IA3Adapter",
    "LinearAdapter",
    "LoRAAdapter",
    "attach_adapter",
    "attach_beside",
    "attach_to_norm",
    "can_adapt",
]
