"""Training on labels with an order."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torch.nn import functional as F

from zoo.errors import UsageError
from zoo.finetuning.base import LABELS
from zoo.io.numbers import parse_int
from zoo.metrics.ordinal import ordinal_metrics
from zoo.objectives.base import LossOutput, Outputs
from zoo.overrides import override
from zoo.tasks.text_classification.train import TextClassification
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.evaluation.base import Prediction


class OrdinalRegression(TextClassification):
    """Ranked probability score of the predicted distribution over the labels."""

    # The loss is the squared distance between the cumulative distributions of prediction and label,
    # summed over the labels. It is a proper scoring rule for which a near miss costs less than a
    # far one (Epstein 1969, J. Appl. Meteorol. 8:985; as a loss of classifiers Hou et al. 2016,
    # arXiv:1611.05916). The model has the head of a classifier, so that all commands accept it.
    # Numbers are ordered by value; ``data.labels`` gives the order of other labels.

    name: ClassVar[str] = "ordinal-regression"
    default_metric: ClassVar[str] = "quadratic_kappa"

    @classmethod
    @override
    def fix_labels(
        cls, run: FineTuneConfig, samples: Sequence[Any], known: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        labels = super().fix_labels(run, samples, known)
        words = [label for label in labels if parse_int(label) is None]
        if words and not known and run.data.labels is None:
            raise UsageError(
                f"the label {words[0]!r} is not a number, and the order of the labels is unknown",
                f"give it with --set data.labels=[{','.join(labels)}], the lowest first",
            )
        return labels

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        return ("quadratic_kappa", "mean_absolute_error", "accuracy")

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        logits, labels = outputs.logits[self.name], batch[LABELS]
        predicted = logits.softmax(-1).cumsum(-1)
        actual = F.one_hot(labels, logits.shape[-1]).cumsum(-1)
        # the median: the first label with a cumulative probability of a half
        median = (predicted.detach() < 0.5).sum(-1)
        probability = logits.detach().softmax(-1).gather(-1, median[:, None])[:, 0]
        return LossOutput(
            {self.name: (predicted - actual).square().sum()},
            predictions={"prediction": median, "label": labels, "probability": probability},
        )

    @override
    def prediction(self, sample: Any, values: "Mapping[str, Any]") -> "Prediction | None":
        row = super().prediction(sample, values)
        distance = abs(int(values["prediction"]) - int(values["label"]))
        return None if row is None else {**row, "distance": distance}

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        return ordinal_metrics(predictions["prediction"], predictions["label"])
