"""LayerDrop: blocks that a training step skips."""

import torch
from torch import nn


class LayerDrop(nn.Module):
    """Decides which blocks a training step skips (Fan et al. 2020, arXiv:1909.11556, section 3.1).

    A skipped block returns its input, and its weights get no gradient. In evaluation, no block is
    skipped, and outputs are not scaled.

    Args:
        p: probability that a block is skipped.

    Attributes:
        runs_skipped_blocks: see ``run_skipped_blocks``.
    """

    runs_skipped_blocks: bool = False

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def extra_repr(self) -> str:
        """Return the probability, which ``print(model)`` shows."""
        return f"p={self.p}"

    def skips_block(self) -> bool:
        """Draw whether the next block is skipped, from torch's generator on the CPU."""
        return self.training and self.p > 0 and bool(torch.rand(()) < self.p)


def run_skipped_blocks(model: nn.Module) -> None:
    """Let a model run the blocks that it skips, which then have gradients of zero.

    Processes that train together skip different blocks, and exchange the gradients of all of them.
    """
    for module in model.modules():
        if isinstance(module, LayerDrop):
            module.runs_skipped_blocks = True
