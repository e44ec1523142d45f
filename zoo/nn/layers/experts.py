"""A mixture of experts in place of a feed-forward network, whose router selects some a token.

Shazeer et al. 2017, arXiv:1701.06538; without the noise of its gate, and without a limit on the
tokens of an expert, as in MegaBlocks (Gale et al. 2022, arXiv:2211.15841).
"""

import torch
from torch import Tensor, nn

from zoo.nn.layers.activations import activate, activation
from zoo.overrides import override


class ExpertFeedForward(nn.Module):
    """Feed-forward networks, of which each token passes the ones that its router scores highest.

    Their outputs are added up, weighted by the softmax over the scores of all experts, which is
    computed in float32 and not normalized again over the selected ones. One bias is added to the
    sum.

    Args:
        hidden_size: width of input and output.
        intermediate_size: inner width of an expert.
        num_experts: number of experts.
        experts_per_token: number of experts that a token passes.
        act: name of the activation function.
        initializer_range: standard deviation of initial weights.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        intermediate_size: int,
        num_experts: int,
        experts_per_token: int,
        act: str,
        initializer_range: float = 0.02,
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.experts_per_token = experts_per_token
        self.act = activation(act)
        self.router = nn.Linear(hidden_size, num_experts, bias=False)
        # The matrices of all experts, one after another.
        self.up = nn.Parameter(torch.empty(num_experts * intermediate_size, hidden_size))
        self.down = nn.Parameter(torch.empty(num_experts * intermediate_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(hidden_size))
        nn.init.normal_(self.up, std=initializer_range)
        nn.init.normal_(self.down, std=initializer_range)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Transform each token: (..., hidden) to the same shape."""
        tokens = x.reshape(-1, x.shape[-1])
        weights = self.route(tokens)
        total = torch.zeros_like(tokens)
        for number, (up, down) in enumerate(
            zip(self.up.chunk(self.num_experts), self.down.chunk(self.num_experts), strict=True)
        ):
            expert_weights = weights[:, number]
            if torch.compiler.is_compiling():
                # A graph has no rows whose number depends on values: all tokens pass all experts.
                output = activate(self.act, tokens @ up.T) @ down
                total = total + output * expert_weights[:, None]
                continue
            (rows,) = expert_weights.nonzero(as_tuple=True)
            output = activate(self.act, tokens[rows] @ up.T) @ down
            total = total.index_add(0, rows, output * expert_weights[rows, None])
        return (total + self.bias).reshape(x.shape)

    def route(self, tokens: Tensor) -> Tensor:
        """Return the weight of each expert for each token: (tokens, hidden) to (tokens, experts).

        Those of experts that are not selected are 0.
        """
        probabilities = self.router(tokens).softmax(-1, dtype=torch.float32)
        top_weights, top_experts = probabilities.topk(self.experts_per_token, dim=-1)
        weights = torch.zeros_like(probabilities).scatter(1, top_experts, top_weights)
        return weights.to(tokens.dtype)
