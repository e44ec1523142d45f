"""Layers that stay in higher precision, where a format can hold several precisions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import VerificationError
from zoo.exporting.quantization.search import Layer, SearchResult, search
from zoo.exporting.report import Agreement
from zoo.io.scratch import scratch_directory

if TYPE_CHECKING:
    from zoo.inference.session import Session


class Mixture(ABC):
    """A model that a target writes again and again, each time with other layers quantized.

    Attributes:
        layers: names of the layers that are quantized, in order.
    """

    layers: list[str]

    @abstractmethod
    def write(self, directory: Path, kept: Collection[str]) -> None:
        """Write the runtime's files into ``folder`` of a directory.

        Args:
            directory: directory of the export.
            kept: layers to write in higher precision.
        """

    @abstractmethod
    def close(self) -> None:
        """Remove what was prepared for ``write``."""


def find_kept(
    mixture: Mixture,
    opened: "Callable[[Path], Session]",
    measure: "Callable[[Session], Agreement]",
    quick: "Callable[[Session], Agreement]",
    max_drop: float,
    dtype: str,
) -> list[str]:
    """Return the layers that have to stay in higher precision, the most sensitive first.

    Args:
        mixture: the model.
        opened: opens written files with their runtime.
        measure: agreement with torch.
        quick: agreement on fewer texts, by which layers are ordered.
        max_drop: largest accepted drop of the agreement.
        dtype: name of the precision.

    Raises:
        DropError: no layer can be quantized within the accepted drop.
    """

    def measured_by(compare: "Callable[[Session], Agreement]") -> Callable[..., Agreement]:
        def measured(quantized: Collection[Layer]) -> Agreement:
            names = {name for _, name in quantized}
            with scratch_directory() as scratch:
                mixture.write(scratch, [n for n in mixture.layers if n not in names])
                session = opened(scratch)
                try:
                    return compare(session)
                except VerificationError:  # such as outputs that are not finite
                    return Agreement(texts=0, measure="outputs", drop=float("inf"))

        return measured

    layers = [("", name) for name in mixture.layers]
    found: SearchResult = search(layers, measured_by(measure), measured_by(quick), max_drop, dtype)
    return [name for _, name in found.float32_layers]
