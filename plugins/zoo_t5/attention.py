"""What T5 is built from: relative positions, attention to the source, norms, gates."""

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.generation import KeysAndValues
from zoo.nn.transformer import Attention, activate, activation
from zoo_t5.config import T5Config


class RMSNorm(nn.RMSNorm):
    """Scales each vector to unit mean square (Zhang and Sennrich 2019, arXiv:1910.07467).

    The mean square is taken in float32 whatever the dtype is, as in the released code.
    """

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__(hidden_size)
        self.epsilon = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., hidden)."""
        if x.dtype == torch.float32 == self.weight.dtype and not torch.compiler.is_exporting():
            return F.rms_norm(x, self.normalized_shape, self.weight, self.epsilon)
        mean_square = x.to(torch.float32).square().mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(mean_square + self.epsilon)).to(self.weight.dtype)


class FeedForward(nn.Module):
    """Two linear maps around an activation, or around a gate (Shazeer 2020, arXiv:2002.05202).

    With a gate, the first map returns twice the width, and the activation of one half scales
    the other.
    """

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gated, self.act = config.gated, activation(config.activation)
        self.up = nn.Linear(width, (1 + config.gated) * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token: (batch, tokens, hidden) to the same shape."""
        x = self.up(x)
        if self.gated:
            gate, x = x.chunk(2, dim=-1)
            x = activate(self.act, gate) * x
        else:
            x = activate(self.act, x)
        return self.down(self.dropout(x))  # type: ignore[no-any-return]


class CrossAttention(Attention):
    """Every token of the target looks at every token of the source."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config.num_heads, config.head_size, config.dropout, scale=1.0)
        self.q = nn.Linear(config.hidden_size, config.inner_size, bias=False)
        self.kv = nn.Linear(config.hidden_size, 2 * config.inner_size, bias=False)
        self.out = nn.Linear(config.inner_size, config.hidden_size, bias=False)

    def keys_and_values(self, source: Tensor) -> KeysAndValues:
        """Return keys and values of what the encoder returned, (batch, tokens, hidden)."""
        keys, values = self.split(self.kv(source), 2)
        return keys, values

    def forward(
        self, x: Tensor, keys_and_values: KeysAndValues | Tensor, mask: Tensor | None
    ) -> Tensor:
        """Gather from the source what each token of the target looks for.

        Args:
            x: (batch, tokens, hidden) of the target.
            keys_and_values: see ``memory``; or the source itself, of which it is made.
            mask: added to the scores, (batch, 1, 1, tokens of the source), or ``None``.

        Returns:
            (batch, tokens, hidden).
        """
        keys, values = (
            self.keys_and_values(keys_and_values)
            if isinstance(keys_and_values, Tensor)
            else keys_and_values
        )
        (queries,) = self.split(self.q(x), 1)
        return self.mix(queries, keys, values, mask)


class RelativePositions(nn.Module):
    """What is added to a score for how far the key is from the query: one table for a stack.

    Args:
        config: the shape.
        bidirectional: whether keys behind the query are looked at.
    """

    def __init__(self, config: T5Config, bidirectional: bool) -> None:
        super().__init__()
        self.shape = (config.num_buckets, config.max_distance, bidirectional)
        self.weight = nn.Parameter(torch.empty(config.num_buckets, config.num_heads))

    def forward(self, queries: int, keys: int) -> Tensor:
        """Return (1, heads, queries, keys), where the last query stands at the last key."""
        longest, device = self.shape[1], self.weight.device
        key, query = (torch.arange(n, device=device) for n in (keys, queries))
        away = (key - (query + (keys - queries))[:, None]).clamp(-longest, longest)
        by_distance = self.weight.t()[:, torch.tensor(buckets(*self.shape), device=device)]
        return by_distance[:, away + longest][None]


@functools.cache
def buckets(count: int, max_distance: int, bidirectional: bool) -> tuple[int, ...]:
    """Return the bucket of each relative position from ``-max_distance`` to ``max_distance``.

    Looking back, each of the first distances has a bucket of its own; longer ones share buckets
    that grow with the logarithm, up to the largest distance (arXiv:1910.10683, section 2.1).
    Looking ahead is the same in the other half of the buckets, or all in bucket 0 where nothing
    looks ahead. The logarithms are compared as powers of integers, which do not round.
    """
    half = count // 2 if bidirectional else count
    exact, steps = half // 2, half - half // 2  # the first buckets, and the growing ones

    def bucket(far: int) -> int:
        # log(far / exact) / log(max_distance / exact) * steps, rounded down, is the step
        reached = (
            far**steps * exact**step >= max_distance**step * exact**steps
            for step in range(1, steps)
        )
        return far if far < exact else exact + sum(reached)

    back = [bucket(distance) for distance in range(max_distance + 1)]
    return (*reversed(back), *(half + b if bidirectional else 0 for b in back[1:]))
