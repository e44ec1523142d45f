"""Sums and counts of losses and metrics over micro-batches, ranks and steps."""

from collections.abc import Mapping
from typing import Any

import torch

from zoo.objectives.base import SOURCE_IDS, Batch, LossOutput
from zoo.training.distributed.context import DistContext

Tensors = dict[str, torch.Tensor]
ROWS = "number of rows"  # Key of a count next to those of loss terms.


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
        # Sums and counts of single sources, by source and loss term.
        self.source_values: dict[tuple[str, str], torch.Tensor] = {}

    def add(self, outcome: LossOutput, counts: Mapping[str, float]) -> None:
        """Add the losses and metrics of a micro-batch."""
        for name, total in outcome.sums.items():
            # A number that is filled in on the device is not waited for, as a copy would be.
            count = total.new_full((), counts[name], dtype=torch.float64)
            self._add_pair(name, torch.stack((total.detach().double(), count)))
        for name, (total, count) in outcome.metrics.items():
            pair = torch.stack((total.detach().double(), count.detach().double()))
            self._add_pair(name, pair)

    def add_sources(self, outcome: LossOutput, batch: Batch) -> None:
        """Add the rows of each source, and their part of the loss terms."""
        # All processes add all sources, so that ``reduce`` finds the same keys in each.
        device = next(iter(outcome.sums.values())).device
        for name, part in batch.sources.items():
            pair = torch.tensor([part.rows, batch.rows], dtype=torch.float64, device=device)
            self._add_source_pair(name, ROWS, pair)
        for term, row_sums in outcome.row_sums.items():
            totals = torch.zeros(len(batch.sources), dtype=torch.float64, device=device)
            totals.index_add_(0, batch.tensors[SOURCE_IDS].to(device), row_sums.double())
            counts = torch.tensor(
                [part.counts.get(term, 0.0) for part in batch.sources.values()],
                dtype=torch.float64,
                device=device,
            )
            if term in outcome.row_counts:
                counts = torch.zeros_like(totals)
                row_counts = outcome.row_counts[term].double()
                counts.index_add_(0, batch.tensors[SOURCE_IDS].to(device), row_counts)
            for number, name in enumerate(batch.sources):
                self._add_source_pair(name, term, torch.stack((totals[number], counts[number])))

    def merge(self, other: "MetricSums") -> None:
        """Add the sums of another accumulator."""
        for name, pair in other.values.items():
            self._add_pair(name, pair)
        for (source, term), pair in other.source_values.items():
            self._add_source_pair(source, term, pair)

    def reduce(self, dist: DistContext) -> "MetricSums":
        """Sum over all processes, in place."""
        if dist.world_size > 1:
            pairs = [*self.values.values(), *self.source_values.values()]
            summed = dist.all_reduce(torch.stack(pairs))
            source_pairs = summed[len(self.values) :]
            self.values = dict(zip(self.values, summed[: len(self.values)], strict=True))
            self.source_values = dict(zip(self.source_values, source_pairs, strict=True))
        return self

    def compute_and_reset(self, terms: Mapping[str, float]) -> dict[str, Any]:
        """Return the means, and reset the sums."""
        means = self.compute(terms)
        self.values = {}
        self.source_values = {}
        return means

    def compute(self, terms: Mapping[str, float]) -> dict[str, Any]:
        """Return the means: ``loss``, the sum of the weighted terms, ``losses`` and ``metrics``.

        With several sources, ``sources`` has the share and the losses of each.
        """
        means: dict[str, Any] = {}
        for name, pair in self.values.items():
            total, count = pair.tolist()
            means[name] = total / count if count else 0.0
        losses = {term: means.pop(term) for term in terms}
        loss = sum(weight * losses[term] for term, weight in terms.items())
        record = {"loss": loss, "losses": losses, "metrics": means}
        if self.source_values:
            record["sources"] = self._compute_sources(terms)
        return record

    def _compute_sources(self, terms: Mapping[str, float]) -> dict[str, dict[str, Any]]:
        """Return the share of the rows of each source and, if it has rows, its losses."""
        sources: dict[str, dict[str, Any]] = {}
        for (source, term), pair in self.source_values.items():
            total, count = pair.tolist()
            record = sources.setdefault(source, {})
            if term == ROWS:
                record["share"] = total / count
            elif count:
                record.setdefault("losses", {})[term] = total / count
        for record in sources.values():
            losses = record.get("losses", {})
            if losses.keys() >= terms.keys():
                record["loss"] = sum(weight * losses[term] for term, weight in terms.items())
        return sources

    def _add_pair(self, name: str, pair: torch.Tensor) -> None:
        if name in self.values:
            pair = self.values[name] + pair
        self.values[name] = pair

    def _add_source_pair(self, source: str, term: str, pair: torch.Tensor) -> None:
        if (source, term) in self.source_values:
            pair = self.source_values[source, term] + pair
        self.source_values[source, term] = pair


def mean_over_sources(
    records: Mapping[str, Mapping[str, Any]], shares: Mapping[str, float]
) -> dict[str, Any]:
    """Return the mean of the records of an evaluation of each source, weighted by their shares.

    Args:
        records: source -> its ``loss``, ``losses`` and ``metrics``.
        shares: source -> weight; they add up to 1.
    """
    mean: dict[str, Any] = {"loss": 0.0, "losses": {}, "metrics": {}}
    for source, record in records.items():
        share = shares[source]
        mean["loss"] += share * record["loss"]
        for group in ("losses", "metrics"):
            for name, value in record[group].items():
                mean[group][name] = mean[group].get(name, 0.0) + share * value
    mean["sources"] = dict(records)
    return mean
