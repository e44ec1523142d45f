"""The mix of all layers of a model with learned weights (Peters et al. 2018, arXiv:1802.05365)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

UNUSED = -1e4  # weight of a layer without a share: its exponential is 0, also in float16


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
        self.layers = layers
        self.weights = nn.Parameter(torch.zeros(layers)) if learned else None
        self.gamma = nn.Parameter(torch.ones(1)) if learned else None

    def select(self, layer: int) -> None:
        """Give one layer the whole share and stop the training of the shares, but not of gamma.

        (``scalar_mix_parameters`` of AllenNLP, with -9e10 for layers without a share.)

        Args:
            layer: index of the layer, from 0 for the embeddings; negative from the end.

        Raises:
            IndexError: the layer does not exist.
        """
        assert self.weights is not None, "a mix that is selected from has weights"
        shares = torch.full_like(self.weights, UNUSED)
        shares[layer] = 0
        self.weights.data.copy_(shares)
        self.weights.requires_grad_(False)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Return the mix of layers, (batch, tokens, hidden) each."""
        stacked = torch.stack(list(layers), dim=-1)
        if self.weights is None or self.gamma is None:
            return stacked.mean(-1)
        return self.gamma * (stacked @ self.weights.softmax(-1))
