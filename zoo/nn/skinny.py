"""Products of a few rows with a large matrix, which is what each step of a decoder computes.

They take as long as it takes to read the matrix, or much longer where a library packs it first
or multiplies row by row. Measured with float32 on CPUs: for up to four rows, a matrix times
columns is nearest to the speed of memory, and an odd number of columns is slower than the next
even one. Matrices with long rows are the exception; torch's own product is as good there.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MOST_ROWS, LONGEST = 4, 2048


def skinny_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, columns: Tensor | None = None
) -> Tensor:
    """Compute what ``torch.nn.functional.linear`` does, fast for a few rows on a CPU.

    Args:
        x: (..., in).
        weight: (out, in).
        bias: (out,).
        columns: a copy of ``weight`` in the other order, (in, out), if there is one. It is what
            a single row is multiplied with fastest.

    Returns:
        (..., out), without a gradient where the fast path is taken.
    """
    rows = x.numel() // x.shape[-1]
    slow = rows > MOST_ROWS or x.shape[-1] > LONGEST or not weight.is_contiguous()
    if slow or not _plain(x) or torch.is_grad_enabled():
        return F.linear(x, weight, bias)
    if rows == 1 and columns is not None:
        return F.linear(x, columns.t(), bias)
    flat = x.reshape(rows, -1)
    if rows % 2:
        flat = torch.cat([flat, flat[:1]])
    if bias is None:
        found = torch.mm(weight, flat.t())  # (out, rows)
    else:
        found = torch.addmm(bias[:, None], weight, flat.t())
    return found[:, :rows].t().contiguous().view(*x.shape[:-1], -1)


def _plain(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu"


class SkinnyLinear(nn.Linear):
    """A linear map that is fast for a few rows; it has the parameters of an ordinary one."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        return skinny_linear(x, self.weight, self.bias)


def quicken(model: nn.Module) -> None:
    """Let the linear maps of a model be fast for a few rows. Parameters stay as they are.

    Args:
        model: changed in place; it should not be traced or trained afterwards.
    """
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = SkinnyLinear
