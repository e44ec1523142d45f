"""The cross-entropy of classes, with class weights."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.nn import functional as F

from zoo.errors import UsageError
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.task import LABELS, TaskContext, TaskLoss
from zoo.objectives.base import Batch, LossOutput, Outputs
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.objectives.losses.predictions import losses_of_rows
from zoo.overrides import override

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True)
class ClassWeights:
    """The weight of each label in the loss."""

    values: tuple[float, ...]


class CrossEntropy(TaskLoss):
    """Cross-entropy of the class of each row.

    With class weights, it is the weighted mean, like ``torch.nn.CrossEntropyLoss(weight=...)``.
    """

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def fit(self, context: TaskContext, rows: TokenizedRows) -> ClassWeights | None:
        return fit_class_weights(context, rows.values[LABELS])

    @override
    def counts(self, context: TaskContext, rows: TokenizedRows) -> "Mapping[str, NDArray[Any]]":
        labels = rows.values[LABELS]
        return {context.name: weigh_labels(labels, fitted_weights(context))}

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        logits = outputs.logits[context.name]
        weights = weight_tensor(context, logits)
        return class_loss(context.name, logits, batch, weights)

    @override
    def count_logits(self, context: TaskContext, batch: Batch, term: str) -> int:
        return count_labels(context, batch, term)


def class_loss(
    name: str,
    logits: "Tensor",
    batch: "Mapping[str, Tensor]",
    weight: "Tensor | None" = None,
) -> LossOutput:
    """Return the summed cross-entropy of classes, and the most probable class of each row."""
    labels = batch[LABELS]
    compute_losses = partial(F.cross_entropy, logits, labels, weight=weight, reduction="none")
    loss = F.cross_entropy(logits, labels, weight=weight, reduction="sum")
    probability, prediction = logits.detach().softmax(-1).max(-1)
    return LossOutput(
        {name: loss},
        predictions={"prediction": prediction, "label": labels, "probability": probability},
        row_sums=losses_of_rows(batch, name, compute_losses),
    )


def count_labels(context: TaskContext, batch: Batch, term: str) -> int:
    """Return the number of labels of a batch that a term is over, without class weights."""
    if term != context.name or fitted_weights(context) is None:
        return round(batch.counts[term])
    return int((batch.tensors[LABELS] != IGNORED).sum())


def weigh_labels(
    indices: "NDArray[np.integer[Any]]", weights: ClassWeights | None
) -> "NDArray[Any]":
    """Return how much each label adds to the count of the loss: its weight, 1 or 0.

    Args:
        indices: index of the class of each row or token, ``IGNORED`` for none.
        weights: the weight of each class, if there are weights.
    """
    is_counted: NDArray[Any] = indices != IGNORED
    if weights is None:
        return is_counted.astype(np.int64)
    present = np.where(is_counted, indices, 0)
    weighed: NDArray[Any] = np.array(weights.values)[present] * is_counted
    return weighed


def weight_tensor(context: TaskContext, logits: "Tensor") -> "Tensor | None":
    """Return the class weights in the dtype and on the device of logits, (labels,), if any."""
    weights = fitted_weights(context)
    if weights is None:
        return None
    return logits.new_tensor(weights.values)


def fitted_weights(context: TaskContext) -> ClassWeights | None:
    """Return the class weights of a run, if its loss has some."""
    if isinstance(context.fitted, ClassWeights):
        return context.fitted
    return None


def fit_class_weights(
    context: TaskContext, indices: "NDArray[np.integer[Any]]"
) -> ClassWeights | None:
    """Return the weights that the setting ``class_weights`` asks for.

    Args:
        context: the run.
        indices: indices of the classes of the training data, (n,).
    """
    setting = context.settings.class_weights
    if setting is None:
        return None
    counts = np.bincount(indices, minlength=len(context.labels))
    return class_weights(setting, context.labels, counts)


def class_weights(
    setting: str | Mapping[str, float], labels: Sequence[str], counts: "NDArray[np.integer[Any]]"
) -> ClassWeights:
    """Return the weight of each label: ``balanced`` by their ``counts``, (labels,), or as given."""
    if isinstance(setting, str):
        # As in scikit-learn. A label without samples, of a pretrained head, keeps the weight 1.
        mean = counts.sum() / np.count_nonzero(counts)
        return ClassWeights(tuple(float(mean / count) if count else 1.0 for count in counts))
    if set(setting) != set(labels):
        raise UsageError(
            f"class_weights has {', '.join(setting)}, and the labels are {', '.join(labels)}",
            "give each label a weight",
        )
    weights = setting.values()
    if not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
        raise UsageError(
            f"class_weights has the weights {', '.join(map(str, weights))}",
            "give finite weights of 0 or more, one of them above 0",
        )
    return ClassWeights(tuple(setting[label] for label in labels))
