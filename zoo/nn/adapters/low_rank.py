"""Low-rank updates of a matrix.

LoRA (Hu et al. 2021, arXiv:2106.09685): W + scaling * B A, with A of shape (rank, in) and B of
shape (out, rank). DoRA (Liu et al. 2024, arXiv:2402.09353, equation 5) scales the rows of that sum
to learned lengths: m * (W + scaling * B A) / |W + scaling * B A|.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.adapters.linear import ALL_ROWS, LinearAdapter, Rows
from zoo.nn.kernels.low_rank import add_low_rank, can_add_in_place
from zoo.nn.kernels.onednn_linear import linear
from zoo.nn.layers.dropout import Dropout
from zoo.overrides import override


class LoRAAdapter(LinearAdapter):
    """A low-rank update of each adapted part."""

    def __init__(
        self,
        rows: Rows,
        size: int,
        width: int,
        *,
        rank: int,
        scaling: float,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(rows, size)
        self.rank = rank
        self.scaling = scaling
        self.dropout = Dropout(dropout)
        self.lora_A = nn.ParameterDict({name: torch.empty(rank, width) for name in rows})
        self.lora_B = nn.ParameterDict(
            {name: torch.empty(len(part), rank) for name, part in rows.items()}
        )
        for name in rows:
            # As in peft and the released code, B A is 0 at first.
            nn.init.kaiming_uniform_(self.lora_A[name], a=math.sqrt(5))
            nn.init.zeros_(self.lora_B[name])

    def factors(self) -> tuple[Tensor, Tensor]:
        """Return A and B of all parts, (parts * rank, in) and (out, parts * rank)."""
        ranks = self.rank * len(self.rows)
        blocks: list[Tensor] = []
        end = 0
        for number, (name, rows) in enumerate(self.rows.items()):
            columns_before = number * self.rank
            columns_after = ranks - columns_before - self.rank
            padding = (columns_before, columns_after, rows.start - end, 0)
            blocks.append(F.pad(self.lora_B[name], padding))
            end = rows.stop
        blocks[-1] = F.pad(blocks[-1], (0, 0, 0, self.size - end))
        a = torch.cat([self.lora_A[name] for name in self.rows])
        return a, torch.cat(blocks)

    def update(self) -> Tensor:
        """Return scaling * B A, (out, in)."""
        a, b = self.factors()
        return (b @ a) * self.scaling

    @override
    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice = ALL_ROWS
    ) -> Tensor:
        y = linear(x, weight, bias)
        if rows == ALL_ROWS and can_add_in_place(x):
            a_parts = [self.lora_A[name] for name in self.rows]
            b_parts = [self.lora_B[name] * self.scaling for name in self.rows]
            row_slices = [slice(part.start, part.stop) for part in self.rows.values()]
            return add_low_rank(y, self.dropout(x), a_parts, b_parts, row_slices)
        a, b = self.factors()
        change = linear(linear(self.dropout(x), a), b[rows])
        return y + change * self.scaling

    @override
    def merge(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return weight + self.update().to(weight), bias


class DoRAAdapter(LoRAAdapter):
    """A low-rank update of the directions of rows, and learned lengths of rows."""

    def __init__(self, rows: Rows, size: int, width: int, **settings: float) -> None:
        super().__init__(rows, size, width, **settings)  # type: ignore[arg-type]
        self.lora_magnitude_vector = nn.ParameterDict(
            {name: torch.ones(len(part)) for name, part in rows.items()}
        )

    @override
    def reset(self, weight: Tensor) -> None:
        with torch.no_grad():
            lengths = self._lengths(weight, self.update().to(weight))
            for name, part in self.rows.items():
                self.lora_magnitude_vector[name].copy_(lengths[part.start : part.stop])

    @staticmethod
    def _lengths(weight: Tensor, update: Tensor) -> Tensor:
        return (weight + update).norm(dim=1)  # type: ignore[no-any-return]

    def gain(self, weight: Tensor, update: Tensor, rows: slice = ALL_ROWS) -> Tensor:
        """Return the factor of each row, (rows,): 1 for rows without an adapter."""
        # Lengths are a constant in the backward pass (section 4.3).
        lengths = self._lengths(weight, update).detach()
        all_lengths = lengths.new_ones(self.size)
        all_lengths[rows] = lengths
        return self.spread(self.lora_magnitude_vector, all_lengths)[rows] / lengths

    @override
    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice = ALL_ROWS
    ) -> Tensor:
        a, b = self.factors()
        b = b[rows]
        gain = self.gain(weight, (b @ a).to(weight) * self.scaling, rows)
        change = linear(linear(self.dropout(x), a), b) * self.scaling
        y = (linear(x, weight) + change) * gain
        return y if bias is None else y + bias

    @override
    def merge(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        update = self.update().to(weight)
        return (weight + update) * self.gain(weight, update)[:, None], bias
