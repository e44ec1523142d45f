"""The mix of all layers of a model with learned weights (Peters et al. 2018, arXiv:1802.05365)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """The mix of layers, equation 1 of the paper; without weights, their mean.

        gamma * sum over k of softmax(weights)_k h_k

    At first, the mix is the mean. (``ScalarMix`` of AllenNLP, without its optional layer norm.)

    Args:
        layers: number of layers, with the embeddings.
        learned: whether there are weights.
    """

    def __init__(self, layers: int, *, learned: bool = True) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers)) if learned else None
        self.gamma = nn.Parameter(torch.ones(1)) if learned else None

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Return the mix of layers, (batch, tokens, hidden) each."""
        stacked = torch.stack(list(layers), dim=-1)
        if self.weights is None or self.gamma is None:
            return stacked.mean(-1)
        return self.gamma * (stacked @ self.weights.softmax(-1))
