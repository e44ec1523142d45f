"""StableAdamW: AdamW whose rate is lowered for a tensor where its running means are out of date."""

import math
from typing import Any

import torch
from torch import Tensor

from zoo.overrides import override
from zoo.training.optim.adam import Adam


class StableAdamW(Adam):
    """StableAdamW.

    The rate of a tensor, also of its weight decay, is divided by the root mean square of gradient /
    max(root of the mean square, eps) if that is above 1.
    """

    # Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language
    # models", arXiv:2304.13013, Algorithm 2; torch has no StableAdamW. A gradient that is larger
    # than the root mean square of those before it would give too large an update, as at the spikes
    # of a loss. Like Adafactor, it clips the update, so that gradients are not clipped.

    @override
    def update(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        updates, roots = self.means(group, parameters)
        torch._foreach_clamp_min_(roots, group["eps"])
        gradients = [p.grad for p in parameters if p.grad is not None]
        norms = torch._foreach_norm(torch._foreach_div(gradients, roots))
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        clips = [
            (norm / math.sqrt(parameter.numel())).clamp(min=1.0)
            for norm, parameter in zip(norms, parameters, strict=True)
        ]
        torch._foreach_div_(updates, clips)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
