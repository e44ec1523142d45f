"""Positions inside attention: rotated queries and keys, and biases of the scores by distance.

They are computed once for each forward pass, and shared by the layers; see
``zoo.nn.encoder.Encoder.attention_inputs``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.nn.packed_attention import DocumentOffsets
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.nn.local_blocks import LocalAndGlobal, LocalBlocks, RowBlocks
    from zoo.nn.sparse_blocks import BlockSparse


@dataclass(frozen=True)
class Positions:
    """Positions of the tokens of a batch, from 0 for the first token of a row or document."""

    # Positions of the tokens that are processed, (batch or 1, queries), int64.
    queries: Tensor
    # Positions of these and of all cached tokens before them, (batch or 1, keys), int64.
    keys: Tensor
    # Document of each token of packed rows, or the attention mask, (batch, tokens), int64, in
    # encoders: tokens of the same number attend to each other. ``None`` if all tokens of a row do.
    segments: Tensor | None = None
    # Whether each token has global attention, (batch, tokens), bool; ``None`` if no token has.
    is_global: Tensor | None = None
    # Largest number of global tokens of a text; ``None`` if it depends on the text.
    most_global: int | None = None

    @property
    def distance(self) -> Tensor:
        """Position of a key minus a query's, (batch or 1, queries, keys)."""
        return self.keys[:, None, :] - self.queries[:, :, None]


def position_in_document(document_ids: Tensor) -> Tensor:
    """Return the positions of the tokens of packed rows, from 0 in each document."""
    # ``document_ids`` is (batch, tokens), int64; equal ones are adjacent.
    columns = torch.arange(document_ids.shape[1], device=document_ids.device)
    begins = torch.ones_like(document_ids)
    begins[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return columns - (columns * begins).cummax(dim=1).values


def fairseq_positions(rows: int, width: int, padding_row: int) -> Tensor:
    """Return the sinusoidal positions of fairseq, (rows, width), float32.

    Row ``p`` has the sines and cosines of ``p * 10000 ** (-k / (width / 2 - 1))`` for ``k`` from 0,
    and the row of padding is zero. Positions of texts begin with the row after that.
    """
    # The code of tensor2tensor and fairseq (``sinusoidal_positional_embedding.py``), which differs
    # from the formula of arXiv:1706.03762. Frequencies and angles are rounded to float32 as there.
    half = width // 2
    exponents = torch.arange(half, dtype=torch.float32, device="cpu")
    frequencies = torch.exp(exponents * -(math.log(10000) / (half - 1)))
    angles = torch.arange(rows, dtype=torch.float32, device="cpu")[:, None] * frequencies
    table = torch.zeros(rows, width, device="cpu")
    table[:, :half] = angles.sin()
    table[:, half : 2 * half] = angles.cos()
    table[padding_row] = 0
    return table


class Rotation(NamedTuple):
    """Cosines and sines of the angles of a batch's positions."""

    cos: Tensor  # (batch or 1, 1, tokens, pairs).
    sin: Tensor  # (batch or 1, 1, tokens, pairs).
    # Whether a pair is two neighbouring components, or one of the first and one of the second half.
    interleaved: bool

    def apply(self, x: Tensor) -> Tensor:
        """Rotate pairs of components of queries or keys, (batch, heads, tokens, head width).

        Components beyond the pairs stay as they are.
        """
        cos = self.cos.to(x.dtype)
        sin = self.sin.to(x.dtype)
        pairs = cos.shape[-1]
        paired = x[..., : 2 * pairs]
        unpaired = x[..., 2 * pairs :]
        if self.interleaved:
            first = paired[..., 0::2]
            second = paired[..., 1::2]
        else:
            first = paired[..., :pairs]
            second = paired[..., pairs:]
        parts = (first * cos - second * sin, second * cos + first * sin)
        if self.interleaved:
            rotated = torch.stack(parts, -1).flatten(-2)
        else:
            rotated = torch.cat(parts, -1)
        if not unpaired.shape[-1]:
            return rotated
        return torch.cat((rotated, unpaired), dim=-1)


@dataclass(frozen=True)
class LinearScaling:
    """Frequencies of positions that are divided by a factor."""

    # Chen et al. 2023, arXiv:2306.15595. In a ``config.json``, it has the ``rope_type`` ``linear``.

    factor: float

    def __call__(self, frequencies: Tensor, position_ids: Tensor) -> Tensor:
        """Return the frequencies of all pairs of components, (pairs,), divided by the factor."""
        return frequencies / self.factor


@dataclass(frozen=True)
class WavelengthScaling:
    """Frequencies whose long wavelengths are stretched."""

    # Grattafiori et al. 2024, arXiv:2407.21783. The formula is from its released code. The factor
    # multiplies wavelengths of more tokens than ``original_max_positions / low_freq_factor``.
    # Shorter ones than ``original_max_positions / high_freq_factor`` stay, and those between are
    # interpolated. In a ``config.json``, it has the ``rope_type`` ``llama3``.

    factor: float
    # Number of turns within the original positions below which a wavelength is long.
    low_freq_factor: float
    high_freq_factor: float  # Number of turns above which it is short.
    original_max_positions: int  # Number of positions before the context was extended.

    def __call__(self, frequencies: Tensor, position_ids: Tensor) -> Tensor:
        """Return the scaled frequencies of all pairs of components, (pairs,)."""
        original = self.original_max_positions
        low = self.low_freq_factor
        high = self.high_freq_factor
        wavelengths = 2 * math.pi / frequencies
        scaled = torch.where(wavelengths > original / low, frequencies / self.factor, frequencies)
        share = (original / wavelengths - low) / (high - low)
        between = (1 - share) * scaled / self.factor + share * scaled
        is_between = (wavelengths >= original / high) & (wavelengths <= original / low)
        return torch.where(is_between, between, scaled)


@dataclass(frozen=True)
class DynamicScaling:
    """Frequencies of a base that grows with the longest row of a batch: dynamic NTK scaling.

    Rows of up to ``max_positions`` tokens have the frequencies of training. The rows of a batch
    share those of its longest one, so that results depend on it.
    """

    # The formula is quoted by Peng et al. 2023, arXiv:2309.00071, appendix A.1 and B.1, and is that
    # of transformers, which keeps the frequencies of the longest row so far for later batches. In a
    # ``config.json``, it has the ``rope_type`` ``dynamic``.

    factor: float
    base: float  # Base of the frequencies.
    max_positions: int  # Number of positions of training.

    def __call__(self, frequencies: Tensor, position_ids: Tensor) -> Tensor:
        """Return the frequencies of all pairs of components, (pairs,), for some positions."""
        width = 2 * len(frequencies)
        longest_row = (position_ids.max() + 1).clamp(min=self.max_positions)
        stretch = self.factor * longest_row / self.max_positions - (self.factor - 1)
        base = self.base * stretch ** (width / (width - 2))
        exponents = torch.arange(0, width, 2, device=frequencies.device).float() / width
        return 1.0 / base**exponents


@dataclass(frozen=True)
class YarnScaling:
    """Frequencies of which slow ones are divided by a factor, and fast ones stay: YaRN."""

    # Peng et al. 2023, arXiv:2309.00071, section 3.2 and its released code: a pair of components
    # that turns ``fast_turns`` times within the original positions stays, one that turns
    # ``slow_turns`` times is divided, and those between are interpolated by their number. In a
    # ``config.json``, it has the ``rope_type`` ``yarn``.

    factor: float
    base: float  # Base of the frequencies.
    original_max_positions: float  # Number of positions before the context was extended.
    fast_turns: float = 32.0
    slow_turns: float = 1.0

    @property
    def magnitude(self) -> float:
        """Factor of cosines and sines, which makes attention as sharp as before (section 3.4)."""
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def __call__(self, frequencies: Tensor, position_ids: Tensor) -> Tensor:
        """Return the scaled frequencies of all pairs of components, (pairs,)."""
        pairs = len(frequencies)
        first = max(math.floor(self._pair_of_turns(self.fast_turns, pairs)), 0)
        last = min(math.ceil(self._pair_of_turns(self.slow_turns, pairs)), 2 * pairs - 1)
        span = last - first if last != first else 0.001  # As in released code.
        numbers = torch.arange(pairs, device=frequencies.device).float()
        kept = 1 - ((numbers - first) / span).clamp(0, 1)
        divided = 1.0 / (self.factor * self.base ** (2 * numbers / (2 * pairs)))
        return divided * (1 - kept) + frequencies * kept

    def _pair_of_turns(self, turns: float, pairs: int) -> float:
        """Return the number of the pair that turns so often within the original positions."""
        positions_per_radian = self.original_max_positions / (turns * 2 * math.pi)
        return pairs * math.log(positions_per_radian) / math.log(self.base)


@dataclass(frozen=True)
class DividedScaling:
    """Frequencies that are scaled, and divided by a factor of their own."""

    scaling: Callable[[Tensor, Tensor], Tensor]
    divisor: float

    def __call__(self, frequencies: Tensor, position_ids: Tensor) -> Tensor:
        """Return the frequencies of all pairs of components, (pairs,)."""
        return self.scaling(frequencies, position_ids) / self.divisor


class Rotary(nn.Module):
    """Rotary position embeddings (Su et al. 2021, arXiv:2104.09864, section 3.2).

    The angle of pair k at position p is p * base ** (-2 k / width), in float32 in models of all
    dtypes, as in released implementations.

    Args:
        width: number of components of a head that are rotated, an even number.
        base: base of the frequencies.
        interleaved: see ``Rotation``.
        scaling: function of the frequencies and of the positions of a batch, such as
            ``LinearScaling``; ``None`` to leave the frequencies.
        magnitude: factor of cosines and sines.
    """

    def __init__(
        self,
        width: int,
        base: float = 10_000.0,
        *,
        interleaved: bool = False,
        scaling: Callable[[Tensor, Tensor], Tensor] | None = None,
        magnitude: float = 1.0,
    ) -> None:
        super().__init__()
        self.width = width
        self.magnitude = magnitude
        self.base = base
        self.interleaved = interleaved
        self.scaling = scaling

    def forward(self, position_ids: Tensor) -> Rotation:
        """Return the rotation of positions, (batch or 1, tokens), int64."""
        exponents = torch.arange(0, self.width, 2, device=position_ids.device).float() / self.width
        frequencies = 1.0 / self.base**exponents
        if self.scaling is not None:
            frequencies = self.scaling(frequencies, position_ids)
        angles = (position_ids.float()[..., None] * frequencies)[:, None]
        cos = angles.cos()
        sin = angles.sin()
        if self.magnitude != 1.0:
            cos = cos * self.magnitude
            sin = sin * self.magnitude
        return Rotation(cos, sin, self.interleaved)


def make_rotary(config: Any, width: int, base: float, *, divisor: float = 1.0) -> Rotary:
    """Return the rotation of a configuration with the fields of ``RopeConfig``.

    Args:
        config: the configuration.
        width: number of components of a head that are rotated.
        base: base of the frequencies.
        divisor: all frequencies are divided by it, scaled or not.
    """
    factor = config.rope_factor or 1.0
    scaling: Callable[[Tensor, Tensor], Tensor] | None = None
    magnitude = 1.0
    match config.rope_type:
        case "linear":
            return Rotary(width, base, scaling=LinearScaling(factor * divisor))
        case "dynamic":
            scaling = DynamicScaling(factor, base, config.max_positions)
        case "yarn":
            # Slower frequencies turn less often, as they would within fewer positions.
            original = (config.rope_original_max_positions or config.max_positions) / divisor
            fast_turns = config.rope_beta_fast or 32.0
            slow_turns = config.rope_beta_slow or 1.0
            scaling = yarn = YarnScaling(factor, base, original, fast_turns, slow_turns)
            magnitude = config.rope_attention_factor
            if magnitude is None:
                magnitude = yarn.magnitude
    if divisor != 1.0:
        scaling = LinearScaling(divisor) if scaling is None else DividedScaling(scaling, divisor)
    return Rotary(width, base, scaling=scaling, magnitude=magnitude)


class LinearBias(nn.Module):
    """Attention with linear biases, ALiBi (Press et al. 2022, arXiv:2108.12409, section 3).

    The score of a query and a key is lowered by the slope of the head times their distance. Adding
    slope times position of the key gives the same probabilities, since a softmax does not change
    if a number is added to all of its inputs.

    Args:
        num_heads: number of heads. If it is a power of two, slopes are 2 ** (-8 h / heads); else
            the slopes of the next lower power, and every second one of the next higher.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.slopes = alibi_slopes(num_heads)

    def forward(self, positions: Positions, dtype: torch.dtype) -> Tensor:
        """Return the bias of the scores, (batch or 1, heads, 1, keys)."""
        slopes = torch.tensor(self.slopes, device=positions.keys.device)
        return (slopes[None, :, None, None] * positions.keys[:, None, None, :]).to(dtype)


class SymmetricLinearBias(LinearBias):
    """ALiBi in both directions (Günther et al. 2023, arXiv:2310.19923, section 3).

    The score of a query and a key is lowered by the slope of the head times their distance, before
    and after the query alike.
    """

    @override
    def forward(self, positions: Positions, dtype: torch.dtype) -> Tensor:
        """Return the bias of the scores, (batch or 1, heads, queries, keys)."""
        distance = positions.distance.abs()
        wide = torch.promote_types(dtype, torch.float32)
        slopes = torch.tensor(self.slopes, dtype=wide, device=distance.device)
        return (slopes[None, :, None, None] * -distance[:, None]).to(dtype)


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the slope of each head; see ``LinearBias``."""
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    slopes_of_next_power = [2.0 ** (-4.0 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return slopes + slopes_of_next_power[: num_heads - power]


class AttentionInputs(NamedTuple):
    """Arguments of the attention of one layer, in addition to its hidden states."""

    # Added to the scores, broadcast to (batch, heads, queries, keys), or the documents of packed
    # rows, or what ``zoo.nn.kernels.local_attention.local_attention`` returns, or the blocks of
    # block-sparse attention, or ``None``.
    mask: "Tensor | DocumentOffsets | LocalBlocks | RowBlocks | LocalAndGlobal | BlockSparse | None"
    rotation: Rotation | None = None  # Rotation of queries and keys, or ``None``.


def add_bias(mask: Tensor | DocumentOffsets | None, bias: Tensor) -> Tensor:
    """Return the sum of a mask and a bias of the scores.

    Args:
        mask: a mask that is added to the scores; documents have to be one
            (``Encoder.adds_bias``).
        bias: (batch or 1, heads, queries or 1, keys).
    """
    assert not isinstance(mask, DocumentOffsets), "adds_bias is not True"
    return bias if mask is None else mask + bias
