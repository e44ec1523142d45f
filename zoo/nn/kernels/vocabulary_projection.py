"""Logits that are not computed yet: the hidden states and the output embeddings of a model."""

from typing import NamedTuple

from torch import Tensor

from zoo.nn.kernels.onednn_linear import linear


class VocabularyProjection(NamedTuple):
    """The last step of a language-model head, whose result is the logits."""

    hidden: Tensor  # (..., width).
    weight: Tensor  # The output embeddings, (vocabulary, width).
    bias: Tensor | None = None  # (vocabulary,), or ``None``.

    def logits(self) -> Tensor:
        """Return the logits, (..., vocabulary)."""
        return linear(self.hidden, self.weight, self.bias)
