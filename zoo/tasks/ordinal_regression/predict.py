"""Labels of an ordered scale, as the medians of their distributions."""

from typing import TYPE_CHECKING, Any, ClassVar

from zoo.inference.processing.numbers import softmax
from zoo.overrides import override
from zoo.tasks.text_classification.predict import ClassifyTexts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Ordinal(ClassifyTexts):
    """Classification on an ordered scale."""

    # Results have the keys ``label``, the median of the distribution over the labels, which
    # minimises the expected distance; ``rank``, the expected index of the label, from 0; and
    # ``scores``, the probabilities of all labels.

    output_keys: ClassVar[tuple[str, ...]] = ("label", "rank", "scores")

    @override
    def result(self, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        probabilities = softmax(logits)
        labels = self.checkpoint.config.labels
        return {
            "label": labels[int((probabilities.cumsum() < 0.5).sum())],
            "rank": float(probabilities @ range(len(labels))),
            "scores": dict(zip(labels, probabilities.tolist(), strict=True)),
        }
