"""Interface of inference sessions, common to torch and ONNX Runtime."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from zoo.errors import UsageError
from zoo.inference.processing.batching import CALL_COST

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.inference.generation.decoder import SequenceGenerator, SessionDecoder

    Arrays = Mapping[str, NDArray[np.generic[Any]]]
    Floats = NDArray[np.floating[Any]]


# Weights that torch quantizes as it loads them, and that exports hold quantized; int4 only
# in exports. Neither is a dtype of checkpoints.
INT8 = "int8"
INT4 = "int4"
QUANTIZED = (INT8, INT4)


# What a task needs of a session that not every backend has: text generation, the hidden states of
# single layers, or a vector for each token.
Need = Literal["generation", "layers", "tokens"]


def no_layers(backend: str) -> UsageError:
    """Return the error of a backend without hidden states of single layers."""
    return UsageError(
        f"the {backend} backend does not expose single layers",
        "run the weights in torch, with --backend cpu",
    )


class BackendWarning(UserWarning):
    """Warning about the backend of a model."""


class Session(ABC):
    """A loaded model: named numpy arrays in, named numpy arrays out.

    Attributes:
        backend: ``cpu``, ``cuda`` or ``onnx``.
        device: device of the model, such as ``cpu`` or ``cuda:0``.
        dtype: dtype of the computation, such as ``float32``.
        inputs: names of the inputs; integer arrays of shape (batch, tokens).
        outputs: names of the outputs.
        layers: number of hidden states, the embeddings included; 0 if the backend returns none.
        stored_bytes: size of the files of the model.
        tolerance: largest accepted difference from torch in float32, of the largest magnitude;
            ``None`` for the dtype's.
        min_tokens: smallest number of tokens that the backend runs, special ones included.
        padding_cost: cost of a token of padding in ``run_attended``, relative to another token.
        call_cost: constant cost of a call of ``run``, in tokens.
    """

    backend: str
    device: str
    dtype: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layers: int = 0
    stored_bytes: int = 0
    tolerance: float | None = None
    min_tokens: int = 1
    padding_cost: float = 1.0
    call_cost: int = CALL_COST

    def concurrent_batches(self, count: int) -> int:
        """Return how many of a number of batches to run at the same time.

        If it is more than one, ``run`` and ``run_attended`` may be called from as many threads
        within ``divide_threads``; see ``zoo.inference.concurrency``.
        """
        return 1

    @contextlib.contextmanager
    def divide_threads(self, count: int) -> Iterator[Callable[[], None]]:
        """Divide the CPU's threads among batches that run at the same time.

        Args:
            count: number of these batches, which ``concurrent_batches`` has returned.

        Yields:
            what each thread calls before its first batch.
        """
        yield lambda: None

    @abstractmethod
    def run(self, inputs: "Arrays", outputs: Sequence[str] | None = None) -> "dict[str, Floats]":
        """Run the model.

        Args:
            inputs: int64 arrays by name. A missing attention mask is all ones, missing token
                types are all zero.
            outputs: names of the outputs to compute, by default all.

        Returns:
            float32 arrays by name (float64 where the session computes in float64).
        """

    def run_attended(
        self, inputs: "Arrays", outputs: Sequence[str] | None = None
    ) -> "dict[str, Floats]":
        """Run the model for a caller that ignores the outputs at padding, which are anything.

        See ``run``. It is faster where padding is not computed.
        """
        return self.run(inputs, outputs)

    def hidden_states(
        self, inputs: "Arrays", layers: Sequence[int] | None = None
    ) -> "list[Floats]":
        """Return hidden states, (batch, tokens, hidden) each.

        Args:
            inputs: int64 arrays by name, as in ``run``.
            layers: numbers of the hidden states, 0 for the embeddings; by default all.

        Raises:
            UsageError: the backend does not expose them.
        """
        raise no_layers(self.backend)

    @abstractmethod
    def decoder(self) -> "SessionDecoder":
        """Return the interface for text generation.

        Raises:
            UsageError: the head does not generate text, or the graph has no key-value cache.
        """

    def generator(self) -> "SessionDecoder | SequenceGenerator":
        """Return what generates text: the decoder, or the search of a runtime.

        Raises:
            UsageError: the head or the export does not generate text.
        """
        return self.decoder()
