"""The task classify: labels of texts, pairs of texts, or tokens."""

from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.families.config import Problem
from zoo.inference.processing.batching import Batch
from zoo.inference.processing.entities import AGGREGATES, Aggregate, TokenProbs, entities
from zoo.inference.processing.numbers import sigmoid, softmax
from zoo.inference.tasks.base import BatchTask, EncodedExample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

THRESHOLD = 0.5  # minimum probability of a label, in multi-label classification


class Classify(BatchTask):
    """Classification of texts, pairs of texts, or tokens.

    Keys of a result, by the problem type of the configuration:

    * single-label classification: ``label``, ``score`` (its probability), ``scores`` of all labels;
    * multi-label classification: ``labels`` of probability 0.5 or more, ``scores``;
    * regression: ``score``, or ``scores`` with several outputs;
    * token classification: ``tokens``, each with ``token``, ``start`` and ``end`` (characters),
      ``label`` and ``score``, without special tokens; or, with ``aggregate``, ``entities``: spans
      with ``label``, ``score``, ``text``, ``start`` and ``end``, without those labelled ``O``.

    Without a problem type, one output means regression and several mean single-label
    classification, as in transformers.

    Args:
        *args: see ``Task``.
        aggregate: how token classification labels spans: ``none`` returns tokens; ``simple`` joins
            adjacent tokens of a type; ``first``, ``average`` and ``max`` first give all tokens of a
            word one label. Words are those of transformers' token-classification pipeline.
        **options: see ``Task``.

    Raises:
        UsageError: ``aggregate`` is unknown, or the head classifies texts; or see ``Task``.
    """

    name: ClassVar[str] = "classify"
    output_keys: ClassVar[tuple[str, ...]] = (
        "label",
        "labels",
        "score",
        "scores",
        "tokens",
        "entities",
    )
    pairs: ClassVar[bool] = True

    def __init__(self, *args: Any, aggregate: Aggregate = "none", **options: Any) -> None:
        super().__init__(*args, **options)
        if aggregate not in AGGREGATES:
            raise UsageError(
                f"tokens cannot be aggregated by {aggregate!r}", f"choose {', '.join(AGGREGATES)}"
            )
        if aggregate != "none" and not self.by_token:
            raise UsageError(
                f"{self.checkpoint.path} classifies texts, and has no tokens to aggregate",
                "leave --aggregate out",
            )
        self.aggregate = aggregate

    @property
    def problem(self) -> Problem:
        """Problem type of the head."""
        config = self.checkpoint.config
        one_output = len(config.labels) == 1
        return config.problem or ("regression" if one_output else "single_label_classification")

    @property
    def by_token(self) -> bool:
        """``True`` if the head classifies tokens: logits are (texts, tokens, labels)."""
        spec = self.checkpoint.family.onnx(self.checkpoint.config, self.checkpoint.head_name)
        return len(spec.outputs["logits"]) == 3

    def check(self, item: EncodedExample) -> None:
        """Raise an error for a pair of texts in token classification."""
        if item.record.pair is not None and self.by_token:
            raise UsageError(
                f"{item.record.location} has a text_pair; token classification takes single texts"
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
        if self.aggregate != "none":
            labels, text = self.checkpoint.config.labels, item.record.text
            tokens = self._probs(item, probabilities)
            return {"entities": entities(tokens, labels, text, self.aggregate)}
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

    def _probs(self, item: EncodedExample, probs: "NDArray[np.float64]") -> list[TokenProbs]:
        """Return the probabilities of tokens, and which of them continue words.

        With a prefix for tokens within words, a token continues one if it has another length than
        its text; otherwise if no space precedes or begins it. Unknown tokens are words.
        """
        encoded, text = item.encoded, item.record.text
        prefix, unknown = self.tokenizer.subword_prefix, self.tokenizer.role_id("unk")
        tokens = []
        for k, (start, end) in enumerate(encoded.offsets):
            if encoded.special[k]:
                continue
            if prefix:
                continues = len(self.tokenizer.token(encoded.ids[k])) != end - start
            else:
                continues = start > 0 and " " not in text[start - 1 : start + 1]
            continues &= encoded.ids[k] != unknown
            tokens.append(TokenProbs(probs[k], start, end, continues))
        return tokens
