"""The task answer: extractive question answering."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.tasks.base import BatchTask, EncodedExample
from zoo.inference.tasks.batching import Batch
from zoo.inference.tasks.checks import require_finite
from zoo.inference.tasks.records import RecordKeys
from zoo.inference.tasks.windows import Span, Window, best_spans, context_range, split_context

if TYPE_CHECKING:
    from zoo.tokenizers import Encoded
    from zoo.tokenizers.tokenizer import Text

WINDOW_TOKENS = 384  # default length of windows, as in Devlin et al. 2018 (arXiv:1810.04805)
DOC_STRIDE = 128  # default overlap of windows
LOGITS = ("start_logits", "end_logits")


class Answer(BatchTask):
    """Answers to questions, as spans of a context.

    Computes what the question-answering pipeline of transformers 4 does: long contexts are split
    into overlapping windows; a span scores the probability of its first token times that of its
    last, over the tokens of its window; it is extended to whole words; scores of equal answers,
    without regard to case, are added, so that sums over windows may exceed 1.

    Results have the keys ``answer``, ``score``, ``start`` and ``end`` (characters of the context);
    with ``top_k`` over 1 also ``predictions``: the best answers, with these keys each. An empty
    answer, whose start and end are 0, means that the context has none.

    Args:
        *args: see ``Task``.
        top_k: number of predictions.
        doc_stride: number of tokens that consecutive windows share; by default 128, or half of a
            shorter window.
        max_answer_len: largest number of tokens of an answer.
        handle_impossible_answer: let no answer compete with the spans, as SQuAD 2.0 does
            (Rajpurkar et al. 2018, arXiv:1806.03822); its score is the lowest of all windows.
        max_tokens: length of windows; by default 384, or the model's limit if it is lower.
        **options: see ``Task``.

    Raises:
        UsageError: an option is out of range; or see ``Task``.
    """

    name: ClassVar[str] = "answer"
    output_keys: ClassVar[tuple[str, ...]] = ("answer", "score", "start", "end", "predictions")
    pairs: ClassVar[bool] = True
    keys: ClassVar[RecordKeys] = RecordKeys(None, ("question", "context"))
    window: int = 256

    def __init__(
        self,
        *args: Any,
        top_k: int = 1,
        doc_stride: int | None = None,
        max_answer_len: int = 15,
        handle_impossible_answer: bool = False,
        max_tokens: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, max_tokens=max_tokens, **options)
        if max_tokens is None:
            self.max_tokens = min(self.max_tokens or WINDOW_TOKENS, WINDOW_TOKENS)
        self.window_tokens = self.max_tokens or WINDOW_TOKENS
        default = min(self.window_tokens // 2, DOC_STRIDE)
        self.doc_stride = default if doc_stride is None else doc_stride
        if not 0 <= self.doc_stride < self.window_tokens:
            raise UsageError(
                f"windows of {self.window_tokens} tokens cannot share {doc_stride}",
                "lower --doc-stride",
            )
        if top_k < 1 or max_answer_len < 1:
            raise UsageError("the number of answers and their length are at least 1")
        self.top_k, self.max_answer_len = top_k, max_answer_len
        self.handle_impossible_answer = handle_impossible_answer

    def encode(self, texts: "Sequence[Text]") -> "list[Encoded]":
        """See ``Task``; windows are cut later."""
        return self.tokenizer.encode(texts, max_tokens=None)

    def check(self, item: EncodedExample) -> None:
        """Check that the question leaves room for the context."""
        tokens = len(item.encoded.ids)
        fixed = tokens - len(context_range(item.encoded))
        if tokens > self.window_tokens and fixed + self.doc_stride >= self.window_tokens:
            raise UsageError(
                f"{item.record.location}: the question has {fixed} tokens with special ones, and "
                f"a window of {self.window_tokens}, of which the next one shares "
                f"{self.doc_stride}, has no room for the context",
                "shorten it, or lower --doc-stride",
            )

    def split(self, item: EncodedExample) -> list[EncodedExample]:
        """Return the windows of a context."""
        windows = split_context(item.encoded, self.window_tokens, self.doc_stride)
        return [EncodedExample(item.record, window, item.row_id) for window in windows]

    def compute(self, items: list[EncodedExample], batch: Batch) -> list[dict[str, Any]]:
        """Return the best spans of each window; see ``Task``."""
        import numpy as np

        outputs = self.session.run(batch.inputs, LOGITS)
        logits = np.stack([outputs[name] for name in LOGITS], axis=-1)  # (windows, tokens, 2)
        require_finite(logits, batch.mask, [item.record for item in items])
        results = []
        for item, values in zip(items, logits, strict=True):
            assert isinstance(item.encoded, Window), "split makes windows"
            spans, no_answer = best_spans(
                values[: len(item.encoded.ids)].T,
                item.encoded,
                self.tokenizer.role_id("cls"),
                count=2 * self.top_k + 10,  # several spans may be the same words
                max_tokens=self.max_answer_len,
            )
            results.append({"part": item.encoded.part, "spans": spans, "no_answer": no_answer})
        return results

    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the best answers over all windows of a context."""
        answers: dict[str, dict[str, Any]] = {}
        for row in rows:
            for span in row["spans"]:
                answer = self._answer(item, row["part"], span)
                first = answers.setdefault(answer["answer"].lower(), {**answer, "score": 0.0})
                first["score"] += span.score
        ranked = list(answers.values())
        if self.handle_impossible_answer or not ranked:
            no_answer = min(row["no_answer"] for row in rows)
            ranked.append({"answer": "", "score": no_answer, "start": 0, "end": 0})
        ranked.sort(key=lambda answer: -answer["score"])
        predictions = {"predictions": ranked[: self.top_k]} if self.top_k > 1 else {}
        return {**ranked[0], **predictions}

    def _answer(self, item: EncodedExample, part: range, span: Span) -> dict[str, Any]:
        """Return the words of a span, as far as they are in the window."""
        words, offsets = item.encoded.word_ids, item.encoded.offsets
        first, last = span.start, span.end
        if words[first] is not None and words[last] is not None:
            while first > part.start and words[first - 1] == words[span.start]:
                first -= 1
            while last + 1 < part.stop and words[last + 1] == words[span.end]:
                last += 1
        start, end = offsets[first][0], offsets[last][1]
        text = item.record.pair or ""
        return {"answer": text[start:end], "score": span.score, "start": start, "end": end}
