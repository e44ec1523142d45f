"""Training of classifiers and regressors of texts or pairs of texts."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.nn import functional as F

from zoo.families.tasks import LabelType
from zoo.finetuning.class_losses import CrossEntropy
from zoo.finetuning.labelled_texts import LabelledTexts, Number, OneClass, SeveralClasses
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.task import LABELS, FineTuningTask, TaskContext, TaskLoss
from zoo.finetuning.text_inputs import TextInputs, TextModel, TextOptions
from zoo.inference.text_results import CLASS_RESULTS, LABEL_SET_RESULTS, NUMBER_RESULTS
from zoo.objectives.base import Batch, LossOutput, Outputs
from zoo.objectives.losses.predictions import losses_of_rows
from zoo.overrides import override

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

HEAD = "sequence-classification"


class SquaredError(TaskLoss):
    """Squared error of one output."""

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def label_type(self, context: TaskContext) -> LabelType:
        return "numbers"

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        values = outputs.logits[context.name].squeeze(-1)
        labels = batch[LABELS]
        return LossOutput(
            {context.name: F.mse_loss(values, labels, reduction="sum")},
            predictions={"prediction": values.detach(), "label": labels},
            row_sums=losses_of_rows(
                batch, context.name, partial(F.mse_loss, values, labels, reduction="none")
            ),
        )


class BinaryCrossEntropy(TaskLoss):
    """Binary cross-entropy of each label, over all labels of all samples."""

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def label_type(self, context: TaskContext) -> LabelType:
        return "probabilities"

    @override
    def counts(self, context: TaskContext, rows: TokenizedRows) -> "Mapping[str, NDArray[Any]]":
        return {context.name: np.full(len(rows), len(context.labels), np.int64)}

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        logits = outputs.logits[context.name]
        labels = batch[LABELS]
        loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        # The probability of exactly these labels, which are independent.
        probability = logits.detach().abs().sigmoid().prod(-1)
        predictions = {
            "prediction": logits.detach() >= 0,
            "label": labels > 0,
            "probability": probability,
        }
        compute_losses = partial(
            F.binary_cross_entropy_with_logits, logits, labels, reduction="none"
        )
        return LossOutput(
            {context.name: loss},
            predictions=predictions,
            row_sums=losses_of_rows(batch, context.name, compute_losses),
        )

    @override
    def count_logits(self, context: TaskContext, batch: Batch, term: str) -> int:
        """Return the number of rows: the loss counts each label of a row."""
        if term != context.name:
            return super().count_logits(context, batch, term)
        return round(batch.counts[term] / len(context.labels))


TEXT_CLASSIFICATION = FineTuningTask(
    name="text-classification",
    head=HEAD,
    data=LabelledTexts(OneClass()),
    inputs=TextInputs(),
    loss=CrossEntropy(),
    results=CLASS_RESULTS,
    model=TextModel(),
    options_type=TextOptions,
    problem="single_label_classification",
)
REGRESSION = FineTuningTask(
    name="regression",
    head=HEAD,
    data=LabelledTexts(Number()),
    inputs=TextInputs(),
    loss=SquaredError(),
    results=NUMBER_RESULTS,
    model=TextModel(),
    options_type=TextOptions,
    problem="regression",
)
MULTI_LABEL = FineTuningTask(
    name="multi-label",
    head=HEAD,
    data=LabelledTexts(SeveralClasses()),
    inputs=TextInputs(),
    loss=BinaryCrossEntropy(),
    results=LABEL_SET_RESULTS,
    model=TextModel(),
    options_type=TextOptions,
    problem="multi_label_classification",
)
