"""LAMB: AdamW with the update of each tensor scaled to the norm of the tensor."""

from typing import Any

import torch
from torch import Tensor

from zoo.overrides import override
from zoo.training.optim.adam import Adam


class Lamb(Adam):
    """LAMB with an optional bias correction.

    A group with ``decayed=False`` is updated without a trust ratio.
    """

    # You et al. 2020, "Large Batch Optimization for Deep Learning: Training [...] in 76 minutes",
    # arXiv:1904.00962, Algorithm 2, with phi(z) = z; torch has no LAMB. As in the code released
    # with Lan et al. 2020 (arXiv:1909.11942, lamb_optimizer.py), parameters without weight decay
    # are updated as by AdamW, and the trust ratio is 1 where the weights or the update are all
    # zero.

    @override
    def update(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        updates, _ = self.means(group, parameters)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["decayed"]:
            weight_norms = torch._foreach_norm(parameters)
            update_norms = torch._foreach_norm(updates)
            trust_ratios = []
            for weight_norm, update_norm in zip(weight_norms, update_norms, strict=True):
                are_positive = (weight_norm > 0) & (update_norm > 0)
                trust_ratios.append(torch.where(are_positive, weight_norm / update_norm, 1.0))
            torch._foreach_mul_(updates, trust_ratios)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
