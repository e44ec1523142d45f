"""The tasks of heads for pairs of texts: what they were pretrained on."""

from typing import Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.numbers import softmax
from zoo.inference.processing.records import RecordKeys
from zoo.inference.task import BatchTask, EncodedExample
from zoo.overrides import override


class SentencePair(BatchTask):
    """Classification of pairs of texts by the pretraining head.

    Results have the keys ``label``, ``score`` (its probability) and ``scores`` of all labels.
    """

    output_keys: ClassVar[tuple[str, ...]] = ("label", "score", "scores")
    pairs: ClassVar[bool] = True
    keys: ClassVar[RecordKeys] = RecordKeys(None)
    labels: ClassVar[tuple[str, ...]]  # Labels of the classes from 0 on.

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        spec = self.checkpoint.onnx_spec
        # logits of a whole row; logits of its tokens have one more axis
        classes = len(self.labels)
        names = [name for name, axes in spec.outputs.items() if axes == ("batch", classes)]
        if len(names) != 1:
            raise UsageError(
                f"the head {self.checkpoint.head_name} of {self.checkpoint.name} does not have "
                f"{classes} classes of pairs, which {self.name} reads"
            )
        (self.output_name,) = names

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        results = []
        for row in softmax(self.output(self.output_name, items, batch)):
            best = int(row.argmax())
            scores = dict(zip(self.labels, row.tolist(), strict=True))
            results.append(
                {"label": self.labels[best], "score": float(row[best]), "scores": scores}
            )
        return results


class PredictNextSentence(SentencePair):
    """Whether the second text follows the first (Devlin et al. 2018, arXiv:1810.04805)."""

    name: ClassVar[str] = "next-sentence"
    labels: ClassVar[tuple[str, ...]] = ("next", "random")


class PredictSentenceOrder(SentencePair):
    """Whether both texts are in order (Lan et al. 2020, arXiv:1909.11942)."""

    name: ClassVar[str] = "sentence-order"
    labels: ClassVar[tuple[str, ...]] = ("in order", "swapped")


class PredictSentenceStructure(SentencePair):
    """How the second text follows the first (Wang et al. 2019, arXiv:1908.04577)."""

    name: ClassVar[str] = "sentence-structure"
    labels: ClassVar[tuple[str, ...]] = ("next", "random", "previous")
