"""Embeddings that follow from the configuration."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FixedEmbedding(nn.Module):
    """A table that follows from the configuration, such as ``zoo.weights.sinusoidal_positions``."""

    # It is neither trained nor stored; the rules of the weights have it as a ``Constant``.

    weight: Tensor

    def __init__(self, values: "NDArray[np.float32]") -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(values), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows of ids: (...) to (..., width)."""
        return nn.functional.embedding(input, self.weight)
