"""Search for the layers that have to stay in float32, by the loss of quantizing only each."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from zoo.errors import VerificationError
from zoo.exporting.report import Agreement, at_least_0
from zoo.io.numbers import format_percent
from zoo.io.progress import progress

Layer = tuple[str, str]  # file of the graph and name of the node
Measure = Callable[[Collection[Layer]], Agreement]


class DropError(VerificationError):
    """No layer can be quantized within the accepted drop."""


class SearchResult(NamedTuple):
    """Result of a search."""

    quantized: list[Layer]
    float32_layers: list[Layer]  # layers in float32, the most sensitive first
    agreement: Agreement  # agreement of the graphs


def search(
    layers: Sequence[Layer], measure: Measure, quick: Measure, max_drop: float, dtype: str
) -> SearchResult:
    """Quantize as many layers as agree with float32."""
    # If all of them together lose too much, each is quantized by itself and measured. Bisection
    # then finds how few of the most sensitive layers have to stay in float32
    if not layers:
        raise VerificationError(f"no layer can be quantized to {dtype}", "nothing was written")
    agreement = measure(layers)
    if _accepted(agreement, max_drop):
        return SearchResult(list(layers), [], agreement)
    loss = {}  # metrics of few samples are often equal: then the cosine decides
    with progress("measuring", len(layers), unit="layers") as advance:
        for layer in layers:
            single = quick([layer])
            loss[layer] = (single.drop, at_least_0(1 - (single.cosine or 0)))
            advance(1)
    ranked = sorted(layers, key=loss.__getitem__, reverse=True)  # the most sensitive first
    best: SearchResult | None = None
    # number of layers in float32
    low = 1
    high = len(ranked)
    while low < high:
        middle = (low + high) // 2
        tried = measure(ranked[middle:])
        if _accepted(tried, max_drop):
            best = SearchResult(ranked[middle:], ranked[:middle], tried)
            high = middle
        else:
            low = middle + 1
    if best is None:
        changes = f"changes the {agreement.measure} by {format_percent(agreement.drop)}"
        if not math.isfinite(agreement.drop):
            changes = "makes outputs NaN or infinite"
        raise DropError(
            f"quantizing all layers to {dtype} {changes}, and no single layer stays within "
            f"{format_percent(max_drop)}",
            "nothing was written; --max-drop accepts more",
        )
    return best


def _accepted(agreement: Agreement, max_drop: float) -> bool:
    return math.isfinite(agreement.drop) and agreement.drop <= max_drop
