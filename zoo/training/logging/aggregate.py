"""Sums and counts of losses and metrics over micro-batches, ranks and steps."""

from collections.abc import Mapping
from typing import Any

import torch

from zoo.objectives.base import LossOutput
from zoo.training.distributed.context import DistContext

Tensors = dict[str, torch.Tensor]


class Predictions:
    """Collects the predictions of batches by name, (batch, ...) each."""

    # Predictions are copied into one buffer. Each tensor of a batch would keep the heap from
    # shrinking: allocated between logits of many labels, they have cost gigabytes.

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
        predictions: Tensors = {}
        for name, sample in self._samples.items():
            buffer = self._buffers[name]
            if buffer:
                values = torch.frombuffer(buffer, dtype=sample.dtype)
                predictions[name] = values.view(-1, *sample.shape[1:])
            else:  # An empty buffer cannot be a tensor.
                predictions[name] = sample
        return predictions


class MetricSums:
    """Accumulates sums and counts by name, on the device, without synchronization."""

    # Sums are float64, so that many additions lose no digit that a log shows.

    def __init__(self) -> None:
        self.values: Tensors = {}

    def add(self, outcome: LossOutput, counts: Mapping[str, float]) -> None:
        """Add the losses and metrics of a micro-batch."""
        for name, total in outcome.sums.items():
            count = torch.tensor(counts[name], dtype=torch.float64, device=total.device)
            self._add_pair(name, torch.stack((total.detach().double(), count)))
        for name, (total, count) in outcome.metrics.items():
            pair = torch.stack((total.detach().double(), count.detach().double()))
            self._add_pair(name, pair)

    def merge(self, other: "MetricSums") -> None:
        """Add the sums of another accumulator."""
        for name, pair in other.values.items():
            self._add_pair(name, pair)

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

    def _add_pair(self, name: str, pair: torch.Tensor) -> None:
        if name in self.values:
            pair = self.values[name] + pair
        self.values[name] = pair
