"""The task answer: extractive question answering."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.records import RecordKeys
from zoo.inference.processing.windows import WINDOW_TOKENS, ContextWindows, Window
from zoo.inference.task import BatchTask, EncodedExample
from zoo.inference.task_checks import require_finite
from zoo.overrides import override
from zoo.tasks.question_answering.spans import Candidates, SpanSearch, WindowSpans

if TYPE_CHECKING:
    from zoo.tokenizers import Encoded
    from zoo.tokenizers.tokenizer import Text

LOGITS = ("start_logits", "end_logits")
P_MASK = "p_mask"


class Answer(BatchTask):
    """Answers to questions, as spans of a context.

    The results equal those of the question-answering pipeline of transformers 4. Long contexts are
    split into overlapping windows. The score of a span is the product of the probabilities of its
    first and last token, over the tokens of its window. Spans are extended to whole words, and
    scores of equal answers, ignoring case, are added: sums over windows may exceed 1.

    A head that searches for spans itself (``span_beams`` of its family) gives the probability of a
    span's last token for each first token, and a logit for no answer.

    Results have the keys ``answer``, ``score``, ``start`` and ``end`` (characters of the context);
    with ``top_k`` over 1 also ``predictions``: the best answers, with these keys each. An empty
    answer, whose start and end are 0, means that the context has none; it competes with the spans
    only with ``handle_impossible_answer``, as in SQuAD 2.0 (Rajpurkar et al. 2018,
    arXiv:1806.03822), and its score is the lowest of all windows.
    """

    name: ClassVar[str] = "answer"
    output_keys: ClassVar[tuple[str, ...]] = ("answer", "score", "start", "end", "predictions")
    pairs: ClassVar[bool] = True
    keys: ClassVar[RecordKeys] = RecordKeys(None, ("question", "context"))
    chunk_size: int = 256

    def __init__(
        self,
        *args: Any,
        top_k: int = 1,
        doc_stride: int | None = None,  # tokens that windows share; by default 128
        max_answer_len: int = 15,  # tokens of the longest answer
        handle_impossible_answer: bool = False,
        null_threshold: float = 0.0,  # margin of no answer, see ``Candidates.ranked``
        max_tokens: int | None = None,  # tokens of a window; by default 384, or the model's limit
        **options: Any,
    ) -> None:
        super().__init__(*args, max_tokens=max_tokens, **options)
        if max_tokens is None:
            self.max_tokens = min(self.max_tokens or WINDOW_TOKENS, WINDOW_TOKENS)
        self.windows = ContextWindows.of(
            self.checkpoint.family, self.max_tokens or WINDOW_TOKENS, doc_stride
        )
        self.has_logits = set(LOGITS) <= set(self.session.outputs)
        self.search = SpanSearch(self.tokenizer.role_id("cls"), max_answer_len, top_k)
        self.handle_impossible_answer = handle_impossible_answer
        self.null_threshold = null_threshold

    @override
    def encode(self, texts: "Sequence[Text]") -> "list[Encoded]":
        """Do not truncate: windows are cut later."""
        pairs = [self.windows.texts(*pair) for pair in texts if isinstance(pair, tuple)]
        return self.tokenizer.encode(pairs, max_tokens=None)

    @override
    def check(self, item: EncodedExample) -> None:
        """Check that the question leaves room for the context."""
        self.windows.require_room(item.encoded, item.record.location)

    @override
    def split(self, item: EncodedExample) -> list[EncodedExample]:
        windows = self.windows.split(item.encoded)
        return [EncodedExample(item.record, window, item.row_id) for window in windows]

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        windows = [item.encoded for item in items if isinstance(item.encoded, Window)]
        if self.has_logits:
            window_spans = self._logit_spans(items, windows, batch)
        else:
            window_spans = self._beam_spans(items, windows, batch)
        return [{"spans": spans} for spans in window_spans]

    def _logit_spans(
        self, items: list[EncodedExample], windows: list[Window], batch: EncodedBatch
    ) -> list[WindowSpans]:
        """Return the best spans of windows, from the logits of their tokens."""
        import numpy as np

        outputs = self.session.run(batch.inputs, LOGITS)
        logits = np.stack([outputs[name] for name in LOGITS], axis=-1)  # (windows, tokens, 2)
        require_finite(logits, batch.mask, [item.record for item in items])
        window_spans = []
        for window, values in zip(windows, logits, strict=True):
            window_logits = values[: len(window.ids)].T
            window_spans.append(self.search.window_spans(window_logits, window))
        return window_spans

    def _beam_spans(
        self, items: list[EncodedExample], windows: list[Window], batch: EncodedBatch
    ) -> list[WindowSpans]:
        """Return the best spans of windows, from those that the head searched for."""
        import numpy as np

        inputs = dict(batch.inputs)
        if P_MASK in self.session.inputs:
            inputs[P_MASK] = np.ones_like(batch.mask, dtype=np.int64)
            for row, window in zip(inputs[P_MASK], windows, strict=True):
                row[: len(window.ids)] = ~window.answer_mask(self.search.no_answer_id)
        family = self.checkpoint.family
        config = self.checkpoint.config
        beams = family.span_beams(config, self.session.run(inputs))
        values = np.column_stack([beams.scores, beams.no_answer_logits])
        require_finite(values, batch.mask, [item.record for item in items])
        return [self.search.beam_spans(beams, row, window) for row, window in enumerate(windows)]

    def candidates(self, item: EncodedExample, rows: list[dict[str, Any]]) -> Candidates:
        """Return the answers over all windows of a context."""
        windows = [row["spans"] for row in rows]
        return self.search.candidates(item.encoded, item.record.pair or "", windows)

    @override
    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the best answers over all windows of a context."""
        ranked = self.candidates(item, rows).ranked(
            handle_impossible_answer=self.handle_impossible_answer,
            null_threshold=self.null_threshold,
        )
        result = dict(ranked[0])
        if self.search.top_k > 1:
            result["predictions"] = ranked[: self.search.top_k]
        return result
