"""The KL divergence of distillation and its backward pass, beside ``torch.nn.functional.kl_div``.

    python -m benchmarks.kl_divergence [--rows 2048] [--classes 8192] [--threads 1] [--rounds 10]

Logits of a student and a teacher, at a temperature of 2. *torch* computes the softened
probabilities of all rows, *zoo* those of as many rows as fit into the cache of a core, together
with the gradient. Both have the same value and gradient.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks._common import alternate, machine, table, versions
from zoo.distillation.divergences import kl_divergence

TEMPERATURE = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--classes", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    student, teacher = torch.randn(2, options.rows, options.classes)
    student.requires_grad_()

    def with_backward(loss: Callable[[], Tensor]) -> Callable[[], tuple[Tensor, Tensor]]:
        def run() -> tuple[Tensor, Tensor]:
            total = loss()
            return total.detach(), torch.autograd.grad(total, student)[0]

        return run

    def plain() -> Tensor:
        predicted, target = (
            (logits / TEMPERATURE).log_softmax(-1) for logits in (student, teacher)
        )
        return F.kl_div(predicted, target, reduction="sum", log_target=True)

    def zoo() -> Tensor:
        return kl_divergence(student, [teacher], temperature=TEMPERATURE, columns=options.classes)

    sides = {"torch": with_backward(plain), "zoo": with_backward(zoo)}
    torch.testing.assert_close(sides["zoo"](), sides["torch"](), rtol=1e-4, atol=1e-8)
    timings = alternate(sides, rounds=options.rounds)
    reference = timings["torch"].median
    rows = [
        [name, f"{timing.median * 1e3:.0f}", f"{reference / timing.median:.2f}x"]
        for name, timing in timings.items()
    ]
    print(f"{options.rows} x {options.classes}; {machine(options.threads)}; {versions('torch')}\n")
    print(table(["", "milliseconds", "of torch"], rows))


if __name__ == "__main__":
    main()
