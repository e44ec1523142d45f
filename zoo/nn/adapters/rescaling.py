"""(IA)^3: learned factors of activations (Liu et al. 2022, arXiv:2205.05638, section 3.3)."""

import torch
from torch import Tensor, nn

from zoo.nn.adapters.linear import ALL_ROWS, LinearAdapter, Rows
from zoo.nn.kernels.onednn_linear import linear
from zoo.overrides import override


class IA3Adapter(LinearAdapter):
    """A factor for each output of the adapted parts, or for each input of the map."""

    def __init__(self, rows: Rows, size: int, width: int, *, scales_input: bool) -> None:
        super().__init__(rows, size)
        self.scales_input = scales_input
        self.ia3_l = nn.ParameterDict(
            {
                name: torch.ones(1, width) if scales_input else torch.ones(len(part), 1)
                for name, part in rows.items()
            }
        )

    def _input_factors(self) -> Tensor:
        (factors,) = self.ia3_l.values()
        return factors  # type: ignore[no-any-return]

    def _output_factors(self, like: Tensor) -> Tensor:
        return self.spread(self.ia3_l, like.new_ones(self.size))

    @override
    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice = ALL_ROWS
    ) -> Tensor:
        if self.scales_input:
            return linear(x * self._input_factors(), weight, bias)
        return linear(x, weight, bias) * self._output_factors(weight)[rows]

    @override
    def merge(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self.scales_input:
            return weight * self._input_factors(), bias
        factors = self._output_factors(weight)
        return weight * factors[:, None], None if bias is None else bias * factors
