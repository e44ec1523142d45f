"""Attention in training on a CPU, forward and backward: the function of torch, and the zoo.

    python -m benchmarks.attention [--tokens 16 64 128 512] [--heads 12] [--threads 1]

8,192 tokens in rows of some length, with heads of 64 numbers and a mask. *torch* is
``torch.nn.functional.scaled_dot_product_attention``. Without dropout, both are compared with the
result in float32, and their gradients with its gradients. With dropout they are right on average:
the slope of a regression on these results is compared with 1.
"""

import argparse
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks._common import alternate, machine, table, versions
from zoo.nn.kernels.attention import attend

TOKENS = 8192
WIDTH = 64
TOLERANCE = 0.02  # of the norm of the difference, relative, or of the slope
Attend = Callable[..., Tensor]
CASES = [(torch.float32, 0.1), (torch.bfloat16, 0.1), (torch.bfloat16, 0.0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 128, 512])
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [
        [str(dtype).removeprefix("torch."), str(dropout), *compare(length, dtype, dropout, options)]
        for (dtype, dropout), length in product(CASES, options.tokens)
    ]
    print(f"{options.heads} heads; {machine(options.threads)}; {versions('torch')}\n")
    header = ["dtype", "dropout", "tokens per row", "torch, ms", "zoo, ms", "of torch"]
    print(table(header, rows))


def compare(
    length: int, dtype: torch.dtype, dropout: float, options: argparse.Namespace
) -> list[str]:
    """Return length, times and ratio of one case."""
    torch.manual_seed(0)
    shape = (TOKENS // length, options.heads, length, WIDTH)
    exact = [torch.randn(shape).requires_grad_() for _ in range(3)]
    rounded = [tensor.detach().to(dtype).requires_grad_() for tensor in exact]
    mask = torch.zeros(shape[0], 1, length, length)
    mask[..., length // 2 :] = -torch.inf
    gradient = torch.randn(shape)

    def side(name: str, inputs: list[Tensor], rate: float) -> Callable[[], list[Tensor]]:
        cast = inputs[0].dtype

        def run() -> list[Tensor]:
            q, k, v = inputs
            if name == "zoo":
                output = attend(q, k, v, mask.to(cast), dropout=rate)
            else:
                output = F.scaled_dot_product_attention(
                    q, k, v, attn_mask=mask.to(cast), dropout_p=rate
                )
            return [output, *torch.autograd.grad(output, inputs, gradient.to(cast))]

        return run

    sides = {name: side(name, rounded, dropout) for name in ("torch", "zoo")}
    for run in sides.values():
        for value, expected in zip(run(), side("torch", exact, 0.0)(), strict=True):
            check(value.float(), expected, dropout)
    timings = alternate(sides, rounds=options.rounds)
    times = [timings[name].median * 1e3 for name in sides]
    return [str(length), *(f"{time:.0f}" for time in times), f"{times[0] / times[1]:.1f}x"]


def check(value: Tensor, expected: Tensor, dropout: float) -> None:
    """Check that a result is the expected one, or is on average."""
    if dropout:
        error = abs((value * expected).sum() / expected.square().sum() - 1)
    else:
        error = (value - expected).norm() / expected.norm()
    assert error < TOLERANCE, "they differ"


if __name__ == "__main__":
    main()
