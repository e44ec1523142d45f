"""Sums and counts of losses and metrics over micro-batches, ranks and steps."""

from collections.abc import Mapping
from typing import Any

import torch

from zoo.objectives.base import LossOutput
from zoo.training.distributed.context import DistContext

Tensors = dict[str, torch.Tensor]


class Predictions:
    """Collects the predictions of batches by name, (batch, ...) each."""

    # They are copied into one buffer. As tensors, each would keep the heap from shrinking after its
    # batch: allocated between logits of many labels, they have cost gigabytes.

    def __init__(self) -> None:
        self._buffers: dict[str, bytearray] = {}
        self._samples: Tensors = {}  # an empty tensor of each name, with its dtype and shape

    def add(self, predictions: Mapping[str, torch.Tensor]) -> None:
        """Append the predictions of a batch."""
        for name, values in predictions.items():
            cpu = values.detach().cpu().contiguous()
            self._samples.setdefault(name, cpu[:0].clone())
            content = cpu.flatten().view(torch.uint8).numpy().tobytes()
            self._buffers.setdefault(name, bytearray()).extend(content)

    def tensors(self) -> Tensors:
        """Return all predictions, on the CPU."""
        return {
            name: torch.frombuffer(buffer, dtype=sample.dtype).view(-1, *sample.shape[1:])
            if (buffer := self._buffers[name])
            else sample
            for name, sample in self._samples.items()
        }


class MetricSums:
    """Accumulates sums and counts by name, on the device, without synchronization."""

    # They are float64, so that many additions lose no digit that a log shows.

    def __init__(self) -> None:
        self.values: Tensors = {}

    def add(self, outcome: LossOutput, counts: Mapping[str, float]) -> None:
        """Add the losses and metrics of a micro-batch."""
        for name, total in outcome.sums.items():
            self._add(
                name,
                total.detach(),
                torch.tensor(counts[name], dtype=torch.float64, device=total.device),
            )
        for name, (total, count) in outcome.metrics.items():
            self._add(name, total.detach(), count.detach())

    def merge(self, other: "MetricSums") -> None:
        """Add the sums of another accumulator."""
        for name, pair in other.values.items():
            self.values[name] = self.values[name] + pair if name in self.values else pair

    def reduce(self, dist: DistContext) -> "MetricSums":
        """Sum over all processes, in place."""
        if dist.world_size > 1:
            summed = dist.all_reduce(torch.stack(list(self.values.values())))
            self.values = dict(zip(self.values, summed, strict=True))
        return self

    def compute_and_reset(self, terms: Mapping[str, float]) -> dict[str, Any]:
        """Return the means, and reset the sums."""
        means = self.compute(terms)
        self.values = {}
        return means

    def compute(self, terms: Mapping[str, float]) -> dict[str, Any]:
        """Return the means: ``loss``, the sum of the weighted terms, ``losses`` and ``metrics``."""
        means = {}
        for name, pair in self.values.items():
            total, count = pair.tolist()
            means[name] = total / count if count else 0.0
        losses = {term: means.pop(term) for term in terms}
        loss = sum(weight * losses[term] for term, weight in terms.items())
        return {"loss": loss, "losses": losses, "metrics": means}

    def _add(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        pair = torch.stack((total.double(), count.double()))
        self.values[name] = self.values[name] + pair if name in self.values else pair
