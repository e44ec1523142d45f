"""Logits at some positions of a batch, and their cross-entropy."""

from typing import TYPE_CHECKING, Any

from zoo.objectives.base import LossOutput

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.nn.heads import VocabularyProjection


def gather_positions(hidden: "Tensor", positions: "Tensor") -> "Tensor":
    """Return the hidden states at some positions: (rows, length, hidden) to (n, hidden).

    Args:
        hidden: hidden states, (rows, length, hidden).
        positions: indices into the flattened rows, (n,), int64.
    """
    return hidden.flatten(0, 1).index_select(0, positions)


def predict_at(
    model: Any, hidden: "Tensor", positions: "Tensor"
) -> "Tensor | VocabularyProjection":
    """Return the logits at some positions, so that the head computes no others.

    Args:
        model: model with ``scores``: (n, hidden) to (n, vocabulary); and, so that not all logits
            have to be held at once, ``project`` and ``vocab_size``, as ``MaskedLM`` has.
        hidden: hidden states of the last layer, (rows, length, hidden).
        positions: indices into the flattened rows, (n,).

    Returns:
        Logits, (n, vocabulary), float32; or the projection to them, see ``Outputs``.
    """
    from zoo.objectives.losses.row_chunks import fits_at_once

    predicted = gather_positions(hidden, positions)
    if hasattr(model, "project") and not fits_at_once(len(positions), model.vocab_size):
        projection: VocabularyProjection = model.project(predicted)
        return projection
    logits: Tensor = model.scores(predicted).float()
    return logits


def cross_entropy_sum(
    logits: "Tensor | VocabularyProjection", labels: "Tensor", term: str
) -> LossOutput:
    """Compute the summed cross-entropy, and the accuracy as a metric.

    Args:
        logits: (n, classes), float32, or the projection to them.
        labels: (n,), int64; -100 for those that do not count.
        term: name of the loss term.
    """
    from zoo.objectives.losses.cross_entropy import IGNORED, summed_cross_entropy

    total, correct = summed_cross_entropy(logits, labels)
    return LossOutput(
        sums={term: total}, metrics={"accuracy": (correct, (labels != IGNORED).sum())}
    )
