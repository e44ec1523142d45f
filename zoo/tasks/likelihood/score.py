"""The task score: log-likelihoods of texts and of continuations."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.processing.records import RecordKeys, TextExample, validate_text
from zoo.inference.task import EncodedExample, Task
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.inference.scoring import ScoredRow
    from zoo.tokenizers import Encoded
    from zoo.tokenizers.tokenizer import Text


class Score(Task):
    """Log-likelihoods of texts, or of continuations given a context.

    Results have the keys ``log_prob``, the log-probability of the text or the continuation in
    nats; ``greedy``, whether each of its tokens is the most likely one; and ``tokens``, each with
    ``token``, ``log_prob`` and ``greedy``. For encoder-decoders the context is the source.
    Contexts that are too long are cut at their beginning; ``truncated`` counts these tokens.
    """

    name: ClassVar[str] = "score"
    output_keys: ClassVar[tuple[str, ...]] = ("log_prob", "greedy", "tokens")
    pairs: ClassVar[bool] = True
    keys: ClassVar[RecordKeys] = RecordKeys("text", ("context", "continuation"))
    chunk_size = 512

    @classmethod
    @override
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        """Make the texts continuations of a context, if the command has one."""
        context = options.pop("context")
        return records if context is None else continuations(records, context), options

    def __init__(self, *args: Any, max_batch_tokens: int | None = None, **options: Any) -> None:
        from zoo.inference.likelihood import Seq2SeqLikelihood, likelihood_type

        super().__init__(*args, **options)
        scorer_class = likelihood_type(self.checkpoint)
        self.scorer = scorer_class(self.checkpoint, self.session, self.tokenizer)
        self.scorer.max_tokens = self.max_tokens
        self.scorer.max_batch_tokens = max_batch_tokens or self.scorer.max_batch_tokens
        self.scorer.batch_size = self.batch_size
        self.needs_context = scorer_class is Seq2SeqLikelihood

    @override
    def encode(self, texts: "Sequence[Text]") -> "list[Encoded]":
        return [*self.scorer.tokenize(texts)]

    @override
    def check(self, item: EncodedExample) -> None:
        """Check that there is a context where the model needs one, and something to score."""
        location = item.record.location
        pair = item.record.pair
        if pair is None and self.needs_context:
            raise UsageError(
                f"{location} has no context, which an encoder-decoder scores it by",
                "give a context and a continuation",
            )
        if pair is not None and not item.encoded.ids:
            raise UsageError(f"{location}: the continuation has no tokens of its own")

    @override
    def run_chunk(
        self, items: list[EncodedExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        tokens: dict[int, list[dict[str, Any]]] = {item.row_id: [] for item in items}
        rows = list(self._rows(items))

        def report(rows_done: int) -> None:
            self.report_progress(len(items) * rows_done // len(rows))

        for row, log_probs, greedy in self.scorer.run(rows, on_batch=report):
            values = (row.labels.tolist(), log_probs.tolist(), greedy.tolist())
            tokens[row.text] += [
                {"token": self.tokenizer.token(token), "log_prob": log_prob, "greedy": likely}
                for token, log_prob, likely in zip(*values, strict=True)
            ]
        for item in items:
            yield item, summary(tokens.pop(item.row_id))

    def _rows(self, items: list[EncodedExample]) -> "Iterator[ScoredRow]":
        from zoo.inference.likelihood import Continuation

        for item in items:
            assert isinstance(item.encoded, Continuation), "encode returns continuations"
            yield from self.scorer.split(item.encoded, item.row_id)


def summary(tokens: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the values of a result from its scored tokens."""
    return {
        "log_prob": sum(token["log_prob"] for token in tokens),
        "greedy": all(token["greedy"] for token in tokens),
        "tokens": tokens,
    }


def continuations(records: Iterator[TextExample], context: str) -> Iterator[TextExample]:
    """Yield the records as continuations of a context, which none may have already."""
    validate_text(context, "--context")
    for record in records:
        if record.pair is not None:
            raise UsageError(f"{record.location} has a context of its own", "leave out --context")
        yield replace(record, text=context, pair=record.text)
