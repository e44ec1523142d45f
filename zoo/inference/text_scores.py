"""Scores of texts and pairs of texts: a class, several classes, or a number of each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.families.config import Problem
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.records import TextExample
from zoo.inference.task import EncodedExample
from zoo.inference.text_results import (
    CLASS_RESULTS,
    LABEL_SET_RESULTS,
    NUMBER_RESULTS,
    TextResults,
)
from zoo.inference.windowed import WindowedTask
from zoo.overrides import override
from zoo.sentence_models.cross_encoder_files import PairSettings
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.tokenizers.tokenizer import Text

# Problem type of a head -> what its logits mean.
RESULTS: Mapping[Problem, TextResults] = {
    "single_label_classification": CLASS_RESULTS,
    "regression": NUMBER_RESULTS,
    "multi_label_classification": LABEL_SET_RESULTS,
}


class TextScores(WindowedTask):
    """Classification of texts or pairs of texts, or regression.

    Keys of a result, by the problem type of the configuration:

    * single-label classification: ``label``, ``score`` (its probability), ``scores`` of all labels;
    * multi-label classification: ``labels`` of probability 0.5 or more, ``scores``;
    * regression: ``score``, or ``scores`` with several outputs; the score of a cross-encoder of
      sentence-transformers is its logit after its activation function.

    Without a problem type, one output means regression and several mean single-label
    classification, as in transformers. A text that is read in windows gets the mean logits of its
    windows, or the largest of each label; a pair that the model reads in both orders gets their
    sum.
    """

    name: ClassVar[str] = "classify"
    output_keys: ClassVar[tuple[str, ...]] = ("label", "labels", "score", "scores")
    pairs: ClassVar[bool] = True
    # What the logits mean; ``None`` to decide by the problem type of the head.
    results: ClassVar[TextResults | None] = None

    def __init__(
        self,
        *args: Any,
        doc_stride: int | None = None,
        prompt_name: str | None = None,  # of a cross-encoder; by default its default prompt
        prompt: str | None = None,  # text in place of a prompt
        **options: Any,
    ) -> None:
        super().__init__(*args, doc_stride=doc_stride, **options)
        self.prompt = self.pair_settings.prompt(prompt_name) if prompt is None else prompt
        self.both_orders = self.checkpoint.model.both_orders
        if doc_stride is not None and self.both_orders:
            raise UsageError(
                f"{self.checkpoint.name} reads pairs in both orders, and not in windows",
                "leave --doc-stride out",
            )

    @property
    @override
    def ignores_padding(self) -> bool:
        return True

    @property
    @override
    def cut_remedy(self) -> str:
        return "" if self.both_orders else super().cut_remedy

    @property
    def pair_settings(self) -> PairSettings:
        """Prompts and length of pairs, of a cross-encoder."""
        return self.checkpoint.model.pairs or PairSettings()

    @override
    def encode(self, texts: "Sequence[Text]") -> list[Encoded]:
        prompt = self.prompt
        if not prompt:
            return super().encode(texts)
        return super().encode([t if isinstance(t, str) else (prompt + t[0], t[1]) for t in texts])

    @override
    def check(self, item: EncodedExample) -> None:
        super().check(item)
        self.require_tokens(item)
        compares = self.both_orders or self.checkpoint.model.score_activation is not None
        if item.record.pair is None and compares:
            raise UsageError(
                f"{item.record.location} is one text, and the model compares two",
                "give pairs, or `zoo run rerank` a query and texts",
            )

    @override
    def split(self, item: EncodedExample) -> list[EncodedExample]:
        text = item.record.text
        pair = item.record.pair
        if pair is None or not self.both_orders:
            return super().split(item)
        return [item, item._replace(encoded=self.encode([(pair, text)])[0])]

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        return [{"logits": row} for row in self.output("logits", items, batch)]

    @override
    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        row_logits = [row["logits"] for row in rows]
        if self.windows is not None:
            return self.result(self.pool_logits(row_logits))
        return self.result(sum(row_logits[1:], row_logits[0]))

    def scores(self, pairs: Iterable[tuple[str, str]]) -> Iterator[float]:
        """Yield the score of each pair of a query and a text."""
        records = (TextExample(query, text, location=repr(query[:40])) for query, text in pairs)
        return (result["score"] for _, result in self.stream(records))

    def result(self, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        """Return the result of a text from its logits, (labels,)."""
        results = self.results or RESULTS[self.checkpoint.config.problem_type]
        return results.prediction.result(self.checkpoint, logits)
