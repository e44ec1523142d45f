"""Training on labels with an order."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch.nn import functional as F

from zoo.finetuning.labelled_texts import LabelledTexts, OneClass
from zoo.finetuning.task import LABELS, FineTuningTask, TaskContext, TaskLoss
from zoo.finetuning.text_inputs import TextInputs, TextModel, TextOptions
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.losses.predictions import losses_of_rows
from zoo.overrides import override
from zoo.tasks.ordinal_regression.results import ORDINAL_RESULTS

if TYPE_CHECKING:
    from torch import Tensor


class RankedProbability(TaskLoss):
    """Ranked probability score of the predicted distribution over the labels.

    It is the squared distance between the cumulative distributions of prediction and label, summed
    over the labels: a proper scoring rule for which a near miss costs less than a far one (Epstein
    1969, J. Appl. Meteorol. 8:985; as a loss of classifiers Hou et al. 2016, arXiv:1611.05916).
    """

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        logits = outputs.logits[context.name]
        labels = batch[LABELS]
        predicted = logits.softmax(-1).cumsum(-1)
        actual = F.one_hot(labels, logits.shape[-1]).cumsum(-1)
        # The median is the first label with a cumulative probability of a half.
        median = (predicted.detach() < 0.5).sum(-1)
        probability = logits.detach().softmax(-1).gather(-1, median[:, None])[:, 0]
        losses = (predicted - actual).square()
        return LossOutput(
            {context.name: losses.sum()},
            predictions={"prediction": median, "label": labels, "probability": probability},
            row_sums=losses_of_rows(batch, context.name, lambda: losses),
        )


# The model has the head of a classifier, so that all commands accept it.
ORDINAL_REGRESSION = FineTuningTask(
    name="ordinal-regression",
    head="sequence-classification",
    data=LabelledTexts(OneClass(in_order=True)),
    inputs=TextInputs(),
    loss=RankedProbability(),
    results=ORDINAL_RESULTS,
    model=TextModel(),
    options_type=TextOptions,
    problem="single_label_classification",
)
