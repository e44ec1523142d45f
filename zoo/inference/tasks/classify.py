"""classify: labels for a text, for a pair of texts, or for each token."""

from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.families.config import Problem
from zoo.inference.tasks.base import EncodedExample, Task
from zoo.inference.tasks.batching import Batch
from zoo.inference.tasks.numbers import sigmoid, softmax

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

THRESHOLD = 0.5  # a label of several that may hold at once is given from this probability on


class Classify(Task):
    """Reads a classification head as its checkpoint's configuration says.

    What a result adds depends on the head:

    * one label of several: ``label``, ``score`` (its probability) and ``scores`` of all;
    * any number of labels: ``labels`` whose probability is at least a half, and ``scores``;
    * regression: ``score``, the number itself; with several outputs, ``scores``;
    * a label for each token: ``tokens``, each with ``token``, ``start`` and ``end`` (characters),
      ``label`` and ``score``. Special tokens are left out.

    A configuration that does not say which it is means regression where there is one output, and
    one label of several otherwise, which is how such heads are trained.
    """

    name: ClassVar[str] = "classify"
    output_keys: ClassVar[tuple[str, ...]] = ("label", "labels", "score", "scores", "tokens")
    pairs: ClassVar[bool] = True

    @property
    def problem(self) -> Problem:
        """What the head was trained for."""
        config = self.checkpoint.config
        alone = len(config.labels) == 1
        return config.problem or ("regression" if alone else "single_label_classification")

    @property
    def by_token(self) -> bool:
        """Whether the head labels tokens: its logits are (texts, tokens, labels)."""
        spec = self.checkpoint.family.onnx(self.checkpoint.config, self.checkpoint.head_name)
        return len(spec.outputs["logits"]) == 3

    def check(self, item: EncodedExample) -> None:
        """See ``Task``: tokens are labelled in single texts."""
        if item.record.pair is not None and self.by_token:
            raise UsageError(
                f"{item.record.location} has a text_pair, and tokens are labelled singly"
            )

    def compute(self, items: list[EncodedExample], batch: Batch) -> list[dict[str, Any]]:
        """See ``Task``."""
        logits = self.output("logits", items, batch)
        if self.by_token:
            return [self._tokens(item, row) for item, row in zip(items, logits, strict=True)]
        return [self._text(row) for row in logits]  # (texts, labels)

    def _text(self, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        if self.problem == "regression":
            if len(logits) == 1:
                return {"score": float(logits[0])}
            return {"scores": self._named(logits)}
        if self.problem == "multi_label_classification":
            scores = self._named(sigmoid(logits))
            return {"labels": [k for k, p in scores.items() if p >= THRESHOLD], "scores": scores}
        probabilities = softmax(logits)
        best = int(probabilities.argmax())
        return {
            "label": self.checkpoint.config.labels[best],
            "score": float(probabilities[best]),
            "scores": self._named(probabilities),
        }

    def _named(self, values: "NDArray[np.floating[Any]]") -> dict[str, float]:
        return dict(zip(self.checkpoint.config.labels, values.tolist(), strict=True))

    def _tokens(self, item: EncodedExample, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        encoded, probabilities = item.encoded, softmax(logits)
        return {
            "tokens": [
                {
                    "token": self.tokenizer.token(encoded.ids[k]),
                    "start": encoded.offsets[k][0],
                    "end": encoded.offsets[k][1],
                    "label": self.checkpoint.config.labels[int(probabilities[k].argmax())],
                    "score": float(probabilities[k].max()),
                }
                for k in range(len(encoded.ids))
                if not encoded.special[k]
            ]
        }
