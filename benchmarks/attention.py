"""Attention in training on a CPU, forward and backward: the function of torch, and the zoo.

    python -m benchmarks.attention [--tokens 16 64 128 512] [--heads 12] [--threads 1]

The first table is of 8,192 tokens in rows of some length, with heads of 64 numbers and a mask.
*torch* is ``torch.nn.functional.scaled_dot_product_attention``. The second table is of one row that
packs 32 documents of different lengths in float32, as in fine-tuning. There, *torch* is a call of
that function for each document, since it has no operator for documents on a CPU. The grouping of
documents, which a training step does once for all layers, is not measured.

Without dropout, both are compared with the result in float32, and their gradients with its
gradients. With dropout they are right on average: the slope of a regression on these results is
compared with 1.
"""

import argparse
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks._common import alternate, machine, table, versions
from zoo.nn.kernels.attention import attend
from zoo.nn.packed_attention import DocumentOffsets

TOKENS = 8192
WIDTH = 64
TOLERANCE = 0.02  # of the norm of the difference, relative, or of the slope
Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]
Run = Callable[[], list[Tensor]]
DOCUMENTS = 32  # number of documents in the row
SHORTEST_DOCUMENT = 4
LONGEST_DOCUMENTS = (12, 56, 200)
DROPOUTS_OF_DOCUMENTS = (0.1, 0.0)
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
    of_documents = [
        [str(dropout), *compare_documents(longest, dropout, options)]
        for dropout, longest in product(DROPOUTS_OF_DOCUMENTS, LONGEST_DOCUMENTS)
    ]
    print(f"{options.heads} heads; {machine(options.threads)}; {versions('torch')}\n")
    times = ["torch, ms", "zoo, ms", "of torch"]
    print(table(["dtype", "dropout", "tokens per row", *times], rows))
    print()
    print(table(["dropout", "tokens per document", *times], of_documents))


def compare(
    length: int, dtype: torch.dtype, dropout: float, options: argparse.Namespace
) -> list[str]:
    """Return length, times and ratio for rows of one length."""
    torch.manual_seed(0)
    shape = (TOKENS // length, options.heads, length, WIDTH)
    exact = [torch.randn(shape).requires_grad_() for _ in range(3)]
    rounded = [tensor.detach().to(dtype).requires_grad_() for tensor in exact]
    mask = torch.zeros(shape[0], 1, length, length)
    mask[..., length // 2 :] = -torch.inf
    gradient = torch.randn(shape)

    def zoo(q: Tensor, k: Tensor, v: Tensor, rate: float) -> Tensor:
        return attend(q, k, v, mask.to(q.dtype), dropout=rate)

    def peer(q: Tensor, k: Tensor, v: Tensor, rate: float) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype), dropout_p=rate)

    sides = {
        "torch": forward_and_backward(peer, rounded, dropout, gradient),
        "zoo": forward_and_backward(zoo, rounded, dropout, gradient),
    }
    check(sides, forward_and_backward(peer, exact, 0.0, gradient)(), dropout)
    return [str(length), *measure(sides, options.rounds)]


def compare_documents(longest: int, dropout: float, options: argparse.Namespace) -> list[str]:
    """Return lengths, times and ratio for a row of documents."""
    torch.manual_seed(0)
    lengths = torch.linspace(SHORTEST_DOCUMENT, longest, DOCUMENTS).round().int()
    lengths = lengths[torch.randperm(DOCUMENTS)]
    offsets = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    shape = (1, options.heads, int(offsets[-1]), WIDTH)
    inputs = [torch.randn(shape).requires_grad_() for _ in range(3)]
    gradient = torch.randn(shape)

    def zoo(q: Tensor, k: Tensor, v: Tensor, rate: float) -> Tensor:
        return attend(q, k, v, DocumentOffsets(offsets, longest), dropout=rate)

    def peer(q: Tensor, k: Tensor, v: Tensor, rate: float) -> Tensor:
        sizes = lengths.tolist()
        parts = zip(*(torch.split(x, sizes, dim=2) for x in (q, k, v)), strict=True)
        outputs = [
            F.scaled_dot_product_attention(queries, keys, values, dropout_p=rate)
            for queries, keys, values in parts
        ]
        return torch.cat(outputs, dim=2)

    sides = {
        "torch": forward_and_backward(peer, inputs, dropout, gradient),
        "zoo": forward_and_backward(zoo, inputs, dropout, gradient),
    }
    check(sides, forward_and_backward(peer, inputs, 0.0, gradient)(), dropout)
    return [f"{SHORTEST_DOCUMENT} to {longest}", *measure(sides, options.rounds)]


def forward_and_backward(
    function: Attend, inputs: list[Tensor], dropout: float, gradient: Tensor
) -> Run:
    """Return a function that returns the output and the gradients of the inputs."""

    def run() -> list[Tensor]:
        q, k, v = inputs
        output = function(q, k, v, dropout)
        return [output, *torch.autograd.grad(output, inputs, gradient.to(output.dtype))]

    return run


def measure(sides: dict[str, Run], rounds: int) -> list[str]:
    """Return the times in milliseconds of both sides, and the ratio."""
    timings = alternate(sides, rounds=rounds)
    times = [timings[name].median * 1e3 for name in sides]
    return [*(f"{time:.1f}" for time in times), f"{times[0] / times[1]:.2f}x"]


def check(sides: dict[str, Run], expected: list[Tensor], dropout: float) -> None:
    """Check that the results of both sides are the expected ones, or are on average."""
    for run in sides.values():
        for value, reference in zip(run(), expected, strict=True):
            check_value(value.float(), reference, dropout)


def check_value(value: Tensor, expected: Tensor, dropout: float) -> None:
    """Check that a result is the expected one, or is on average."""
    if dropout:
        error = abs((value * expected).sum() / expected.square().sum() - 1)
    else:
        error = (value - expected).norm() / expected.norm()
    assert error < TOLERANCE, "they differ"


if __name__ == "__main__":
    main()
