"""The one interface over torch on CPU, torch on CUDA and ONNX Runtime."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.inference.generation.decoder import Decoder

    Arrays = Mapping[str, NDArray[np.generic[Any]]]
    Floats = NDArray[np.floating[Any]]


class BackendWarning(UserWarning):
    """Something about how a model runs that its user should know."""


class Session(ABC):
    """A model that is ready to run: named numpy arrays in and out.

    Attributes:
        backend: ``cpu``, ``cuda`` or ``onnx``.
        device: where it runs, such as ``cpu`` or ``cuda:0``.
        dtype: what it computes in, such as ``float32``.
        inputs: the names it accepts; integer arrays of shape (batch, tokens).
        outputs: the names it returns.
        layers: number of hidden states, the embeddings included; 0 if the backend returns none.
    """

    backend: str
    device: str
    dtype: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layers: int = 0

    @abstractmethod
    def run(self, inputs: "Arrays", outputs: Sequence[str] | None = None) -> "dict[str, Floats]":
        """Compute outputs.

        Args:
            inputs: int64 arrays by name; a name in ``inputs`` that is absent gets its neutral
                value (a mask of ones, token types of zero).
            outputs: the names wanted, by default all.

        Returns:
            float32 arrays by name (float64 where the session computes in float64).
        """

    def hidden_states(
        self, inputs: "Arrays", layers: Sequence[int] | None = None
    ) -> "list[Floats]":
        """Return hidden states, (batch, tokens, hidden) each.

        Args:
            inputs: int64 arrays by name, as in ``run``.
            layers: numbers of the hidden states, 0 for the embeddings; by default all.

        Raises:
            UsageError: this backend's graph does not expose them.
        """
        from zoo.errors import UsageError

        raise UsageError(
            f"the {self.backend} backend does not expose single layers", "use --backend cpu"
        )

    @abstractmethod
    def decoder(self) -> "Decoder":
        """Return the model as something that generates text.

        Raises:
            UsageError: the model does not generate, or its graph was exported without a cache.
        """
