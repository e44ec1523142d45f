"""Logits at some positions of a batch, and their cross-entropy."""

from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.objectives.base import SOURCE_IDS, LossOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from zoo.nn.heads import VocabularyProjection


class ValueRows(NamedTuple):
    """The rows of a batch that values belong to.

    Attributes:
        indices: row of each value, (n,), int64.
        num_rows: number of rows.
    """

    indices: "Tensor"
    num_rows: int


def value_rows(
    batch: "Mapping[str, Tensor]", positions: str, inputs: str = "input_ids"
) -> ValueRows | None:
    """Return the row of each value of a batch; ``None`` if no losses of single rows are asked for.

    Args:
        batch: tensors of a ``Batch``.
        positions: tensor with the position of each value in the flattened rows, (n,).
        inputs: tensor with the tokens of the rows, (rows, length).
    """
    if SOURCE_IDS not in batch:
        return None
    rows, length = batch[inputs].shape
    return ValueRows(batch[positions] // length, rows)


def labelled_rows(batch: "Mapping[str, Tensor]", is_labelled: "Tensor") -> ValueRows | None:
    """Return the same for the labels of a padded batch.

    Args:
        batch: tensors of a ``Batch``.
        is_labelled: which tokens have a label, (rows, length), bool.
    """
    if SOURCE_IDS not in batch:
        return None
    return ValueRows(is_labelled.nonzero()[:, 0], len(is_labelled))


def losses_of_rows(
    batch: "Mapping[str, Tensor]", term: str, compute: "Callable[[], Tensor]"
) -> "dict[str, Tensor]":
    """Return ``LossOutput.row_sums`` of a term; empty if no losses of single rows are asked for.

    Args:
        batch: tensors of a ``Batch``.
        term: name of the term.
        compute: returns the losses whose sum is the term, (rows, ...) or flattened.
    """
    if SOURCE_IDS not in batch:
        return {}
    losses = compute().detach()
    return {term: losses.reshape(len(batch[SOURCE_IDS]), -1).sum(1)}


def gather_positions(hidden: "Tensor", positions: "Tensor") -> "Tensor":
    """Return the hidden states at some positions.

    Args:
        hidden: (rows, length, hidden).
        positions: indices into the flattened rows, (n,), int64.

    Returns:
        Hidden states, (n, hidden).
    """
    from zoo.nn.transformer import select_tokens

    return select_tokens(positions, hidden)[0]


def encode_at(model: Any, inputs: "Mapping[str, Tensor]", positions: "Tensor") -> "Tensor":
    """Return the last hidden states at n positions of the flattened rows, int64: (n, hidden)."""
    if hasattr(model, "encode_at"):
        hidden: Tensor = model.encode_at(positions, **inputs)
        return hidden
    return gather_positions(model.encode(**inputs), positions)


def predict_at(
    model: Any, hidden: "Tensor", positions: "Tensor"
) -> "Tensor | VocabularyProjection":
    """Return the logits at some positions, so that the head computes no others.

    Args:
        model: see ``predict``.
        hidden: hidden states of the last layer, (rows, length, hidden).
        positions: indices into the flattened rows, (n,).

    Returns:
        Logits, (n, vocabulary), float32; or the projection to them, see ``Outputs``.
    """
    return predict(model, gather_positions(hidden, positions))


def predict(model: Any, hidden: "Tensor") -> "Tensor | VocabularyProjection":
    """Return the logits, (n, vocabulary), float32, or their projection, see ``Outputs``.

    Args:
        model: has ``scores``, (n, hidden) to (n, vocabulary); and, so that not all logits have to
            be held at once, ``project`` and ``vocab_size``, like ``MaskedLM``.
        hidden: hidden states of the last layer, (n, hidden).
    """
    from zoo.nn.dtypes import at_least_float32
    from zoo.nn.row_chunks import fits_at_once

    if hasattr(model, "project") and not fits_at_once(len(hidden), model.vocab_size):
        projection: VocabularyProjection = model.project(hidden)
        return projection
    logits: Tensor = at_least_float32(model.scores(hidden))
    return logits


def cross_entropy_sum(
    logits: "Tensor | VocabularyProjection",
    labels: "Tensor",
    term: str,
    rows: ValueRows | None = None,
    *,
    label_smoothing: float = 0.0,
) -> LossOutput:
    """Compute the summed cross-entropy, also of each row if asked for, and the accuracy.

    Args:
        logits: (n, classes), float32, or the projection to them.
        labels: (n,), int64; -100 for those that do not count.
        term: name of the loss term.
        rows: row of each label, for the sum of each row; see ``value_rows``.
        label_smoothing: weight of the uniform distribution in the targets.
    """
    from functools import partial

    from zoo.nn.row_sums import sum_over_rows
    from zoo.objectives.losses.cross_entropy import IGNORED, cross_entropy_of_rows

    loss = partial(cross_entropy_of_rows, label_smoothing=label_smoothing)
    if rows is None:
        sums = sum_over_rows(loss, logits, labels)
        row_sums = {}
    else:
        loss = partial(loss, num_rows=rows.num_rows)
        sums = sum_over_rows(loss, logits, labels, rows.indices)
        row_sums = {term: sums[2:].detach()}
    correct = sums[1].detach().long()
    count = (labels != IGNORED).sum()
    return LossOutput({term: sums[0]}, {"accuracy": (correct, count)}, row_sums=row_sums)
