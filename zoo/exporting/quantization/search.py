"""Search for the layers that have to stay in higher precision, by the loss of each."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from zoo.errors import VerificationError
from zoo.exporting.report import Agreement, at_least_0
from zoo.io.numbers import format_percent
from zoo.io.progress import progress
from zoo.io.scratch import scratch_directory

Layer = TypeVar("Layer", bound=Hashable)


class DropError(VerificationError):
    """No layer can be quantized within the accepted drop."""


class MixedPrecisionModel(ABC, Generic[Layer]):
    """A model that is written again and again, each time with other layers quantized.

    Attributes:
        layers: the layers that can be quantized, in order: their names, or file and name.
    """

    layers: Sequence[Layer]

    @abstractmethod
    def write(self, directory: Path, quantized: Collection[Layer]) -> None:
        """Write the model's files into a directory.

        Args:
            directory: directory of the export, or a temporary one.
            quantized: layers to quantize; the others stay in higher precision.
        """

    def close(self) -> None:
        """Remove what was prepared for ``write``; by default nothing was."""
        return None


class LayerSelection(NamedTuple, Generic[Layer]):
    """The layers of a model that are quantized, and how it then agrees."""

    quantized: list[Layer]
    higher_precision: list[Layer]  # the most sensitive first
    agreement: Agreement  # of the model with these layers quantized


def select_quantized_layers(
    model: MixedPrecisionModel[Layer],
    measure: Callable[[Path], Agreement],
    measure_quickly: Callable[[Path], Agreement],
    max_drop: float,
    dtype: str,
) -> LayerSelection[Layer]:
    """Return as many layers as can be quantized within the accepted drop.

    If all layers together lose too much, each is quantized by itself and measured. Bisection then
    finds how few of the most sensitive layers have to stay in higher precision.

    Args:
        model: the model, which is written into a temporary directory for each measurement.
        measure: returns how the files of a directory agree with the model in float32.
        measure_quickly: the same on fewer texts, which puts the layers in order.
        max_drop: largest accepted drop of the agreement.
        dtype: name of the precision, for messages.

    Raises:
        VerificationError: the model has no layer that can be quantized.
        DropError: no layer can be quantized within the accepted drop.
    """

    def agreement_of(layers: Collection[Layer], compare: Callable[[Path], Agreement]) -> Agreement:
        with scratch_directory() as scratch:
            model.write(scratch, layers)
            return compare(scratch)

    layers = model.layers
    if not layers:
        raise VerificationError(f"no layer can be quantized to {dtype}", "nothing was written")
    agreement = agreement_of(layers, measure)
    if _is_accepted(agreement, max_drop):
        return LayerSelection(list(layers), [], agreement)
    # Metrics of few samples are often equal; then the cosine decides.
    losses: dict[Layer, tuple[float, float]] = {}
    with progress("measuring", len(layers), unit="layers") as advance:
        for layer in layers:
            single = agreement_of([layer], measure_quickly)
            losses[layer] = (single.drop, at_least_0(1 - (single.cosine or 0)))
            advance(1)
    most_sensitive_first = sorted(layers, key=losses.__getitem__, reverse=True)
    selection: LayerSelection[Layer] | None = None
    # The bounds of the number of layers in higher precision.
    low = 1
    high = len(most_sensitive_first)
    while low < high:
        middle = (low + high) // 2
        candidates = most_sensitive_first[middle:]
        measured = agreement_of(candidates, measure)
        if _is_accepted(measured, max_drop):
            selection = LayerSelection(candidates, most_sensitive_first[:middle], measured)
            high = middle
        else:
            low = middle + 1
    if selection is None:
        changes = f"changes the {agreement.measure} by {format_percent(agreement.drop)}"
        if not math.isfinite(agreement.drop):
            changes = "makes outputs NaN or infinite"
        raise DropError(
            f"quantizing all layers to {dtype} {changes}, and no single layer stays within "
            f"{format_percent(max_drop)}",
            "nothing was written; --max-drop accepts more",
        )
    return selection


def _is_accepted(agreement: Agreement, max_drop: float) -> bool:
    return math.isfinite(agreement.drop) and agreement.drop <= max_drop
