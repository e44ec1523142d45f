"""The task classify: labels of texts, pairs of texts, or tokens."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.words import words_of_tokens
from zoo.errors import UsageError
from zoo.families.config import Problem
from zoo.inference.processing.batching import Batch
from zoo.inference.processing.entities import (
    AGGREGATES,
    Aggregate,
    Labelled,
    TokenProbs,
    entities,
    labelled_spans,
)
from zoo.inference.processing.numbers import sigmoid, softmax
from zoo.inference.processing.viterbi import marginals, viterbi
from zoo.inference.processing.windows import TextWindows, join_windows
from zoo.inference.task import BatchTask, EncodedExample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.tokenizers import Encoded
    from zoo.tokenizers.tokenizer import Text

THRESHOLD = 0.5  # minimum probability of a label, in multi-label classification


class Classify(BatchTask):
    """Classification of texts, pairs of texts, or tokens.

    Keys of a result, by the problem type of the configuration:

    * single-label classification: ``label``, ``score`` (its probability), ``scores`` of all labels;
    * multi-label classification: ``labels`` of probability 0.5 or more, ``scores``;
    * regression: ``score``, or ``scores`` with several outputs; of a cross-encoder of
      sentence-transformers, the score is what its activation function makes of the logit;
    * token classification: ``tokens``, each with ``token``, ``start`` and ``end`` (characters),
      ``label`` and ``score``, without special tokens; or, with ``aggregate``, ``entities``: spans
      with ``label``, ``score``, ``text``, ``start`` and ``end``, without those labelled ``O``.

    A model with a CRF labels the words of a text, which white space separates, together: all tokens
    of a word have its label, and its probability over all labellings as score.

    Without a problem type, one output means regression and several mean single-label
    classification, as in transformers.

    Args:
        *args: see ``Task``.
        aggregate: how token classification labels spans: ``none`` returns tokens; ``simple`` joins
            adjacent tokens of a type; ``first``, ``average`` and ``max`` first give all tokens of a
            word one label. Words are those of transformers' token-classification pipeline.
        doc_stride: split texts that are longer than ``max_tokens`` into windows that share this
            number of tokens, in place of truncating them, see ``TextWindows``. The logits of a text
            are the mean of those of its windows, and those of a token are of the window in which
            it has most context, see ``join_windows``. ``None`` for truncation.
        **options: see ``Task``.

    Raises:
        UsageError: ``aggregate`` is unknown, or the head classifies texts; windows are asked for
            of a model that reads pairs in both orders; or see ``Task``.
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

    def __init__(
        self,
        *args: Any,
        aggregate: Aggregate = "none",
        doc_stride: int | None = None,
        **options: Any,
    ) -> None:
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
        self.windows: TextWindows | None = None
        if doc_stride is not None:
            if self.checkpoint.model.both_orders:
                raise UsageError(
                    f"{self.checkpoint.path} reads pairs in both orders, and not in windows",
                    "leave --doc-stride out",
                )
            if self.max_tokens is not None:  # otherwise any text is one window
                self.windows = TextWindows.of(self.checkpoint.family, self.max_tokens, doc_stride)

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
        """Raise an error for a pair in token classification, and a single text of both orders.

        A text without tokens is an error, too, unless the result is that of its tokens.
        """
        if self.windows is not None:
            self.windows.require_room(item.encoded, item.record.location)
        if not self.by_token:
            self.require_tokens(item)
        if item.record.pair is None and self.checkpoint.model.both_orders:
            raise UsageError(f"{item.record.location} is one text, and the model compares two")
        if item.record.pair is not None and self.by_token:
            raise UsageError(
                f"{item.record.location} has a text_pair; token classification takes single texts"
            )

    def compute(self, items: list[EncodedExample], batch: Batch) -> list[dict[str, Any]]:
        """See ``Task``."""
        logits = self.output("logits", items, batch)
        if self.windows is not None:
            return [{"logits": row} for row in logits]
        if self.by_token:
            return [self._tokens(item, row) for item, row in zip(items, logits, strict=True)]
        if self.checkpoint.model.both_orders:
            return [{"logits": row} for row in logits]
        return [self._text(row) for row in logits]  # (texts, labels)

    def split(self, item: EncodedExample) -> list[EncodedExample]:
        """See ``BatchTask``: with both orders, a pair is two rows; or the windows of a text."""
        if self.windows is not None:
            return [item._replace(encoded=w) for w in self.windows.split(item.encoded)]
        text, pair = item.record.text, item.record.pair
        if pair is None or not self.checkpoint.model.both_orders:
            return [item]
        return [item, item._replace(encoded=self.encode([(pair, text)])[0])]

    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """See ``BatchTask``: with both orders, their logits are added; windows are joined."""
        if self.windows is not None:
            return self._join(self.windows, item, [row["logits"] for row in rows])
        if not self.checkpoint.model.both_orders:
            return super().merge(item, rows)
        return self._text(sum((row["logits"] for row in rows[1:]), rows[0]["logits"]))

    def encode(self, texts: "Sequence[Text]") -> "list[Encoded]":
        """See ``Task``; windows are cut later."""
        if self.windows is None:
            return super().encode(texts)
        return self.tokenizer.encode(texts, max_tokens=None)

    def _join(
        self, windows: TextWindows, item: EncodedExample, logits: "list[NDArray[Any]]"
    ) -> dict[str, Any]:
        """Return the result of a text from the logits of its windows."""
        if self.by_token:
            parts = list(windows.split(item.encoded))
            return self._tokens(item, join_windows(item.encoded, parts, logits))
        return self._text(sum(logits[1:], logits[0]) / len(logits))

    def _text(self, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        if self.problem == "regression":
            if len(logits) == 1:
                activate = self.checkpoint.model.score_activation == "sigmoid"
                return {"score": float((sigmoid(logits) if activate else logits)[0])}
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
        if self.checkpoint.model.transitions is not None:
            return self._words(item, logits)
        encoded, probabilities = item.encoded, softmax(logits)
        if self.aggregate != "none":
            labels, text = self.checkpoint.config.labels, item.record.text
            tokens = self._probs(item, probabilities)
            return {"entities": entities(tokens, labels, text, self.aggregate)}
        labels = self.checkpoint.config.labels
        return {
            "tokens": [
                self._token(encoded, k, labels[int(row.argmax())], float(row.max()))
                for k, row in enumerate(probabilities[: len(encoded.ids)])
                if not encoded.special[k]
            ]
        }

    def _token(self, encoded: "Encoded", index: int, label: str, score: float) -> dict[str, Any]:
        start, end = encoded.offsets[index]
        token = encoded.tokens[index]
        return {"token": token, "start": start, "end": end, "label": label, "score": score}

    def word_starts(self, item: EncodedExample) -> list[int]:
        """Return the position of each word of a text that a CRF labels, in characters."""
        return [match.start() for match in re.finditer(r"\S+", item.record.text)]

    def _words(self, item: EncodedExample, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        """Return the tokens or spans of a text by the most probable labelling of its words."""
        import numpy as np

        encoded, text = item.encoded, item.record.text
        starts, words = self.word_starts(item), dict[int, list[int]]()
        for token, word in words_of_tokens(text, starts, encoded.offsets, encoded.special):
            words.setdefault(word, []).append(token)
        if not words:
            return {"tokens": []} if self.aggregate == "none" else {"entities": []}
        transitions = np.array(self.checkpoint.model.transitions)
        emissions = logits[[tokens[0] for tokens in words.values()]].astype(np.float64)
        best, scores = viterbi(emissions, transitions), marginals(emissions, transitions)
        labelled = [
            Labelled(
                self.checkpoint.config.labels[label],
                float(scores[number, label]),
                encoded.offsets[tokens[0]][0],
                encoded.offsets[tokens[-1]][1],
            )
            for number, (label, tokens) in enumerate(zip(best, words.values(), strict=True))
        ]
        if self.aggregate != "none":
            return {"entities": labelled_spans(labelled, text)}
        return {
            "tokens": [
                self._token(encoded, token, word.label, word.score)
                for tokens, word in zip(words.values(), labelled, strict=True)
                for token in tokens
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
