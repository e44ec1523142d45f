"""Batches of one shape throughout a run, so that compiled code is made once."""

from collections.abc import Sequence
from dataclasses import replace

from torch.nn import functional as F

from zoo.objectives.base import Batch, Example, Objective
from zoo.objectives.losses.cross_entropy import IGNORED


def collate_static(objective: Objective, examples: Sequence[Example]) -> Batch:
    """Collate examples into a batch whose shapes only depend on their number and length.

    Rows have different numbers of predicted tokens. Their positions and labels are padded to the
    largest number that rows can have: with position 0, and with labels that count for no loss and
    no metric.
    """
    batch = objective.collate(examples)
    tensors = dict(batch.tensors)
    for name, most in objective.max_values(batch).items():
        values = batch.tensors[name]
        size = batch.rows * most
        padding = size - len(values)
        assert padding >= 0, f"{name} has {len(values)} values, more than the {size} of full rows"
        fill = IGNORED if name.endswith("labels") else 0
        tensors[name] = F.pad(values, (0, padding), value=fill)
    return replace(batch, tensors=tensors)
