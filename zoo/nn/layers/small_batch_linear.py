"""Products of a few rows with a large matrix, which is what each step of a decoder computes.

At best they take as long as it takes to read the matrix. Measured with float32 on CPUs: torch's
own product does for up to three rows; from there on it takes up to twice as long as a batch of
small products, one for each block of the matrix. From sixteen rows on it is as good again.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FEWEST_ROWS, MOST_ROWS = 4, 15
BLOCK = 64 * 768  # numbers in a block of the matrix: it fits the cache of a core


def small_batch_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute what ``torch.nn.functional.linear`` does, fast for a few rows on a CPU.

    Args:
        x: (..., in).
        weight: (out, in).
        bias: (out,).

    Returns:
        (..., out), without a gradient where the fast path is taken.
    """
    width, height = x.shape[-1], max(1, BLOCK // x.shape[-1])
    rows, blocks = x.numel() // width, len(weight) // height
    few = FEWEST_ROWS <= rows <= MOST_ROWS and blocks > 1
    if not few or not _plain(x) or not weight.is_contiguous() or torch.is_grad_enabled():
        return F.linear(x, weight, bias)
    # views in one call each: a step makes hundreds of these products
    same = x.contiguous().as_strided((blocks, rows, width), (0, width, 1))
    by_block = weight.as_strided((blocks, width, height), (height * width, 1, width))
    found = torch.bmm(same, by_block)  # (blocks, rows, height)
    found = found.transpose(0, 1).reshape(*x.shape[:-1], blocks * height)
    if blocks * height < len(weight):
        found = torch.cat((found, F.linear(x, weight[blocks * height :])), dim=-1)
    if bias is not None:
        found += bias
    return found


def _plain(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu"


class SmallBatchLinear(nn.Linear):
    """A linear map that is fast for a few rows; it has the parameters of an ordinary one."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        return small_batch_linear(x, self.weight, self.bias)


def optimize_for_inference(model: nn.Module) -> None:
    """Let the linear maps of a model be fast for a few rows. Parameters stay as they are.

    Args:
        model: changed in place; it should not be traced or trained afterwards.
    """
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = SmallBatchLinear
