"""Low-rank updates in place."""

import torch
from torch.nn import functional as F

from zoo.nn.kernels.low_rank import add_low_rank


def test_values_and_gradients_are_those_of_the_formula() -> None:
    """In float64, for two parts of seven columns, of different ranks, with a column in between."""
    torch.manual_seed(0)
    shapes = [(2, 3, 4), (7, 4), (7,), (2, 4), (1, 4), (3, 2), (3, 1)]
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    weights = torch.randn(2, 3, 7, dtype=torch.float64)

    x, weight, bias, a, c, b, d = leaves
    parts = [slice(0, 3), slice(4, 7)]
    in_place = add_low_rank(F.linear(x, weight, bias), x, [a, c], [b, d], parts)
    y = x @ weight.T + bias
    first, last = y[..., :3] + x @ a.T @ b.T, y[..., 4:] + x @ c.T @ d.T
    by_formula = torch.cat([first, y[..., 3:4], last], -1)
    results = [
        [y, *torch.autograd.grad((y * weights).sum(), leaves, retain_graph=True)]
        for y in (in_place, by_formula)
    ]
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
