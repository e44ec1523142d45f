"""Adding up losses and metrics: sums and counts, over micro-batches, ranks and steps."""

from collections.abc import Mapping
from typing import Any

import torch

from zoo.objectives.base import LossOutput
from zoo.training.distributed.context import DistContext

Tensors = dict[str, torch.Tensor]


class MetricSums:
    """Sums and counts by name, on the device, so that nothing waits for them.

    They are kept in float64: many small additions lose nothing that a log would show.

    Attributes:
        values: name -> (2,), a sum and a count.
    """

    def __init__(self) -> None:
        self.values: Tensors = {}

    def add(self, outcome: LossOutput, counts: Mapping[str, int]) -> None:
        """Add what was said of a batch.

        Args:
            outcome: of the batch.
            counts: how many each of its loss terms is a sum of.
        """
        for name, total in outcome.sums.items():
            self._add(name, total.detach(), total.new_tensor(counts[name]))
        for name, (total, count) in outcome.metrics.items():
            self._add(name, total.detach(), count.detach())

    def merge(self, other: "MetricSums") -> None:
        """Add other totals."""
        for name, pair in other.values.items():
            self.values[name] = self.values[name] + pair if name in self.values else pair

    def reduce(self, ranks: DistContext) -> "MetricSums":
        """Return the totals of all processes; each gets the same."""
        if ranks.world_size > 1:
            summed = ranks.all_reduce(torch.stack(list(self.values.values())))
            self.values = dict(zip(self.values, summed, strict=True))
        return self

    def compute_and_reset(self, terms: Mapping[str, float]) -> dict[str, Any]:
        """Return the means, and begin anew.

        Args:
            terms: loss term -> its weight in ``loss``.

        Returns:
            ``loss``, what is minimised; ``losses``, term -> mean; ``metrics``, name -> mean.
        """
        means = {}
        for name, pair in self.values.items():
            total, count = pair.tolist()
            means[name] = total / count if count else 0.0
        self.values = {}
        losses = {term: means.pop(term) for term in terms}
        loss = sum(weight * losses[term] for term, weight in terms.items())
        return {"loss": loss, "losses": losses, "metrics": means}

    def _add(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        pair = torch.stack((total.double(), count.double()))
        self.values[name] = self.values[name] + pair if name in self.values else pair
