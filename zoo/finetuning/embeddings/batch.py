"""The embeddings of a batch, as losses and measures see them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from zoo.finetuning.task import TaskContext
from zoo.training.distributed.gather import gather_rows, process_count

if TYPE_CHECKING:
    from zoo.finetuning.embeddings.representation import Representation


@dataclass(frozen=True)
class EmbeddedBatch:
    """The embeddings of a batch.

    Attributes:
        context: the run.
        representation: what the embeddings are.
        vectors: embeddings of anchors, their texts and negatives, (columns, rows, dimensions), or
            (columns, rows, tokens, dimensions) for a representation by tokens; float32.
        labels: labels of the rows, (rows,) or (rows, negatives); empty without labels.
        class_logits: logits of the classes of pairs, (rows, classes), where labels are classes.
        splits_micro_batches: whether several processes share a micro-batch.
    """

    context: TaskContext
    representation: "Representation"
    vectors: Tensor
    labels: Tensor
    class_logits: Tensor | None = None
    splits_micro_batches: bool = False

    def gather(self, rows: Tensor) -> tuple[Tensor, int]:
        """Return the rows of all processes that share a micro-batch, and the index of the first.

        An evaluation compares the rows of one process, which are whole micro-batches.
        """
        if not (torch.is_grad_enabled() and self.splits_micro_batches):
            return rows, 0
        return gather_rows(rows), torch.distributed.get_rank() * len(rows)

    def score_matrix(self, anchors: Tensor, columns: Sequence[Tensor], scale: float) -> Tensor:
        """Return the scaled similarity of each anchor to each text of all columns, (rows, n)."""
        return self.representation.score_matrix(self.context, anchors, columns, scale)

    def margins(self) -> Tensor:
        """Return how much more alike an anchor and its text are than its negatives."""
        return self.representation.margins(self.context, self.vectors)


def splits_micro_batches(context: TaskContext) -> bool:
    """Return whether the processes of a run share micro-batches."""
    settings = context.settings
    processes = process_count()
    size = settings.micro_batch_size or settings.batch_size
    return processes > 1 and settings.batch_size // processes % size != 0
