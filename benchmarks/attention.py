"""Attention in bfloat16 on a CPU, forward and backward: the kernel of torch, and the zoo.

    python -m benchmarks.attention [--tokens 16 64 128 512] [--heads 12] [--threads 1]

8,192 tokens in rows of some length, with heads of 64 numbers and a mask. *kernel* is
``torch.nn.functional.scaled_dot_product_attention``; *zoo* computes the products one by one. Both
are compared with the result in float32, and their gradients with its gradients.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks._common import alternate, machine, table, versions
from zoo.nn.transformer import attend

TOKENS, WIDTH = 8192, 64
TOLERANCE = 0.02  # of the norm of the difference, relative
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 128, 512])
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [compare(length, options) for length in options.tokens]
    print(f"{options.heads} heads; {machine(options.threads)}; {versions('torch')}\n")
    print(table(["tokens per row", "kernel, ms", "zoo, ms", "of the kernel"], rows))


def compare(length: int, options: argparse.Namespace) -> list[str]:
    """Return the row of the table of one length."""
    torch.manual_seed(0)
    shape = (TOKENS // length, options.heads, length, WIDTH)
    exact = [torch.randn(shape).requires_grad_() for _ in range(3)]
    rounded = [tensor.detach().bfloat16().requires_grad_() for tensor in exact]
    mask = torch.zeros(shape[0], 1, length, length)
    mask[..., length // 2 :] = -torch.inf
    gradient = torch.randn(shape)

    def side(function: Attend, inputs: list[Tensor]) -> Callable[[], list[Tensor]]:
        dtype = inputs[0].dtype

        def run() -> list[Tensor]:
            q, k, v = inputs
            output = function(q, k, v, mask.to(dtype))
            return [output, *torch.autograd.grad(output, inputs, gradient.to(dtype))]

        return run

    sides = {"kernel": side(F.scaled_dot_product_attention, rounded), "zoo": side(attend, rounded)}
    reference = side(F.scaled_dot_product_attention, exact)()
    for run in sides.values():
        for value, expected in zip(run(), reference, strict=True):
            assert (value.float() - expected).norm() < TOLERANCE * expected.norm(), "they differ"
    timings = alternate(sides, rounds=options.rounds)
    times = [timings[name].median * 1e3 for name in sides]
    return [str(length), *(f"{time:.0f}" for time in times), f"{times[0] / times[1]:.1f}x"]


if __name__ == "__main__":
    main()
