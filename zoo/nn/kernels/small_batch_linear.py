"""Products of a few rows with a large matrix, the work of each step of generation on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.kernels.onednn_linear import is_for_onednn, linear

FEWEST_ROWS = 4
MOST_ROWS = 15
BLOCK = 64 * 768  # elements of a block of the matrix: it fits the cache of a core


def small_batch_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``torch.nn.functional.linear``, fast for a few rows: (..., in) to (..., out)."""
    # weight: (out, in); bias: (out,). The fast path is for CPUs. It has no gradient, and is taken
    # only where none is recorded.
    # Such a product is limited by the time to read the matrix. Measured with float32 on CPUs:
    # torch's own product reaches that limit for up to three rows; from four to fifteen rows it
    # takes up to twice as long as ``torch.bmm`` on blocks of the matrix that fit a core's cache;
    # from sixteen rows on it is as fast again. oneDNN is fast for all of them.
    width = x.shape[-1]
    height = max(1, BLOCK // x.shape[-1])
    rows = x.numel() // width
    blocks = len(weight) // height
    few = FEWEST_ROWS <= rows <= MOST_ROWS and blocks > 1
    if (
        not few
        or is_for_onednn(x, weight)
        or not (x.dtype == torch.float32 and x.device.type == "cpu")
        or not weight.is_contiguous()
        or torch.is_grad_enabled()
    ):
        return linear(x, weight, bias)
    # as_strided makes each view in one call: a step of generation computes hundreds of products
    repeated = x.contiguous().as_strided((blocks, rows, width), (0, width, 1))
    by_block = weight.as_strided((blocks, width, height), (height * width, 1, width))
    out = torch.bmm(repeated, by_block)  # (blocks, rows, height)
    out = out.transpose(0, 1).reshape(*x.shape[:-1], blocks * height)
    if blocks * height < len(weight):
        out = torch.cat((out, F.linear(x, weight[blocks * height :])), dim=-1)
    if bias is not None:
        out += bias
    return out


class SmallBatchLinear(nn.Linear):
    """``nn.Linear`` by ``small_batch_linear``, with the same parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        return small_batch_linear(x, self.weight, self.bias)


def optimize_for_inference(model: nn.Module) -> None:
    """Turn the linear maps of a model into ``SmallBatchLinear``, in place."""
    for module in model.modules():
        if type(module) is nn.Linear:  # not a subclass, which may compute something else
            module.__class__ = SmallBatchLinear
