"""Report of an export, which the manifest contains and the command prints."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct
from zoo.io.numbers import format_bytes, format_percent
from zoo.plugins.metrics import greater_is_better


def at_least_0(drop: float) -> float:
    """Return a drop, 0 for an improvement and infinite for NaN, which ``max`` would lose."""
    return math.inf if math.isnan(drop) else max(0.0, drop)


class OutputDifference(JsonStruct):
    """Difference between an output of a runtime and torch's, without padding."""

    max_abs: float  # largest absolute difference
    max_rel: float  # largest absolute difference, divided by the largest magnitude of the output
    cosine: float  # cosine similarity of the two outputs, each flattened to one vector
    # fraction of tokens with the same argmax, from 0 to 1; ``None`` except for logits
    argmax: float | None = None


class ShapeCheck(JsonStruct):
    """Comparison of a graph with torch on one batch."""

    batch: int  # number of rows
    tokens: int  # number of tokens per row, with padding
    padding: int  # number of padding tokens in the batch
    outputs: dict[str, OutputDifference]
    past: int = 0  # number of tokens per row that were in the key-value cache
    texts: bool = False  # whether the rows are texts, and not random tokens

    @property
    def worst(self) -> float:
        """Largest ``max_rel`` of the outputs."""
        return max(output.max_rel for output in self.outputs.values())

    @property
    def after(self) -> str:
        """Phrase with the number of cached tokens, for messages; empty without any."""
        return f", after {self.past} in the cache" if self.past else ""

    @property
    def argmax(self) -> float | None:
        """Smallest ``argmax`` of the outputs; ``None`` without logits."""
        shares = [output.argmax for output in self.outputs.values() if output.argmax is not None]
        return min(shares, default=None)

    def line(self) -> str:
        """Return the shape and the difference as a phrase."""
        argmax = "" if self.argmax is None else f", argmax agrees in {self.argmax:.2%}"
        padding = f" ({self.padding} padding)" if self.padding else ""
        shape = f"{self.batch} x {self.tokens} tokens{padding}{self.after}"
        return f"{shape}: {self.worst:.1e}{argmax}"


class Agreement(JsonStruct):
    """Agreement of a quantized or fused graph with the one in float32."""

    texts: int  # number of texts, or of rows of random tokens
    # what the gate compares: the metric of labelled data, ``perplexity`` of language models,
    # ``ranking`` of rerankers, sparse encoders and late interaction, ``correlation`` of other heads
    # with a single logit, ``argmax`` of other heads with logits, else ``cosine``
    measure: str
    # the relative loss of the metric, the relative increase of the perplexity, or 1 - the ranking,
    # the correlation, argmax or cosine
    drop: float
    # mean cosine similarity of a text's vectors: the first output, pooled as the model does, or
    # else its mean over tokens; ``None`` where vectors differ in size
    cosine: float | None = None
    lowest_cosine: float | None = None  # of a text
    # fraction of tokens or texts with the same argmax; ``None`` without logits
    argmax: float | None = None
    # Pearson's correlation of the scores of a head with a single logit, such as regression
    correlation: float | None = None
    # Spearman's correlation of similarities to other texts, or of the scores of pairs
    ranking: float | None = None
    perplexity: float | None = None  # perplexity of the graph; ``None`` where no text is predicted
    reference: float | None = None  # perplexity in float32
    metric: float | None = None  # metric on labelled data, called ``measure``; ``None`` without
    reference_metric: float | None = None  # the same in float32
    random_tokens: bool = False  # whether rows of random tokens took the place of texts

    def with_metric(self, name: str, reference: float, value: float) -> "Agreement":
        """Return the agreement with a metric as the measure."""
        loss = reference - value
        if not greater_is_better(name):
            loss = -loss
        if loss:
            loss = loss / abs(reference) if reference else math.copysign(math.inf, loss)
        return msgspec.structs.replace(
            self, measure=name, drop=at_least_0(loss), metric=value, reference_metric=reference
        )

    def drop_line(self, accepted: float) -> str:
        """Return what is lost, and how much is accepted, as a phrase."""
        return (
            f"loss of {self.measure}: {format_percent(self.drop)} "
            f"(accepted: {format_percent(accepted)})"
        )

    def line(self) -> str:
        """Return the numbers as a phrase."""
        parts = [] if self.cosine is None else [f"cosine {self.cosine:.4f}"]
        if self.lowest_cosine is not None:
            parts.append(f"at the lowest {self.lowest_cosine:.4f}")
        if self.argmax is not None:
            parts.append(f"argmax agrees in {self.argmax:.1%}")
        if self.ranking is not None:
            parts.append(f"rank correlation of the texts {self.ranking:.4f}")
        if self.correlation is not None:
            parts.append(f"correlation of the scores {self.correlation:.4f}")
        if self.perplexity is not None and self.reference is not None:
            parts.append(f"perplexity {self.perplexity:.2f}, in float32 {self.reference:.2f}")
        compared = "rows of random tokens" if self.random_tokens else "texts"
        line = f"{', '.join(parts)}, of {self.texts} {compared}"
        if self.metric is not None:
            line += f"; {self.measure} {self.metric:.4f}, in float32 {self.reference_metric:.4f}"
        return line


class TokenizerAgreement(JsonStruct):
    """Comparison of a runtime's own tokenizer with the model's."""

    texts: int  # number of texts
    different: list[str] = msgspec.field(default_factory=list)  # those that it cuts differently

    def line(self) -> str:
        """Return the result as a phrase."""
        if not self.different:
            return f"its tokenizer cuts all {self.texts} texts as the model's"
        return f"its tokenizer cuts {len(self.different)} of {self.texts} texts differently"


class GenerationAgreement(JsonStruct):
    """Comparison of what a runtime generates with what torch does."""

    texts: int  # number of texts
    equal: dict[str, int]  # search -> number of texts with equal tokens

    def line(self) -> str:
        """Return the result as a phrase."""
        counts = [f"{count} of {self.texts} texts {name}" for name, count in self.equal.items()]
        return f"generates the tokens of torch: {', '.join(counts)}"


class ExportReport(JsonStruct):
    """Description of a model that was exported to a runtime, and its comparison with torch.

    A target may have a subclass with fields of its own, see ``ExportTarget.report_type``.
    """

    target: str  # name of the export target
    title: str  # name of its runtime
    dtype: str  # precision that was written
    validated: bool  # whether the runtime ran the files and agreed with torch
    files: list[str]  # files of the runtime, relative to the directory
    bytes: int  # their size
    versions: dict[str, str]  # package -> version, for the packages used in the export
    weights: dict[str, FileDigest]  # the weights that were exported
    # the reason why programs that read the Hub's layout do not compute the model's results;
    # ``None`` if they do
    unreadable_elsewhere: str | None = None
    unverified: str | None = None  # why nothing was compared; ``None`` if it was
    # largest accepted difference, of the largest magnitude; ``None`` if quantized
    tolerance: float | None = None
    reason: str = ""  # why results differ by as much
    max_rel: float | None = None  # largest difference of all outputs and batches
    argmax_agreement: float | None = None  # smallest agreement of the argmax; ``None`` without
    checks: list[ShapeCheck] = msgspec.field(default_factory=list)  # comparisons, one per batch
    agreement: Agreement | None = None  # agreement with torch on text
    max_drop: float | None = None  # largest accepted drop of the agreement
    tokenizer: TokenizerAgreement | None = None  # ``None`` if the runtime takes token ids
    generation: GenerationAgreement | None = None  # ``None`` if the runtime does not generate
    kept: list[str] = msgspec.field(default_factory=list)  # tensors kept in higher precision
    tensors: dict[str, int] = msgspec.field(default_factory=dict)  # dtype -> number of tensors
    # number of rows and of tokens per row of the batch that the model was traced with
    traced: list[int] = msgspec.field(default_factory=list)

    def measured_precisions(self) -> "Iterator[tuple[str, Agreement]]":
        """Yield each precision that was compared on texts, and its agreement."""
        if self.agreement is not None:
            yield self.dtype, self.agreement

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as values that JSON can represent."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values

    def lines(self) -> list[str]:
        """Return the lines of the report for a terminal."""
        return list(self._lines())

    def _differences(self) -> Iterator[str]:
        yield (
            "largest difference from torch, of the largest magnitude (accepted: "
            f"{self.tolerance:.0e}, since {self.reason}):"
            if self.tolerance is not None
            else "difference from torch, of the largest magnitude:"
        )
        yield from (f"  {check.line()}" for check in self.checks if not check.texts)
        if texts := [check for check in self.checks if check.texts]:
            count = sum(check.batch for check in texts)
            worst = max(c.worst for c in texts)
            yield f"  {count} texts, up to {max(c.tokens for c in texts)} tokens: {worst:.1e}"

    def _lines(self) -> Iterator[str]:
        yield f"{self.title}, {self.dtype}: {', '.join(self.files)}, {format_bytes(self.bytes)}"
        if self.unverified is not None:
            yield f"not compared with torch: {self.unverified}"
        if self.checks:
            yield from self._differences()
        if self.reason and not self.checks and self.agreement is not None:
            yield self.reason
        if self.agreement is not None:
            yield f"on text: {self.agreement.line()}"
            if self.max_drop is not None:
                yield f"  {self.agreement.drop_line(self.max_drop)}"
        if self.kept:
            yield f"in higher precision because they lose most: {', '.join(self.kept)}"
        if self.generation is not None:
            yield self.generation.line()
        if self.tokenizer is not None:
            yield self.tokenizer.line()
            yield from (f"  {text!r}" for text in self.tokenizer.different)
        if self.unreadable_elsewhere is not None:
            yield f"for zoo and {self.title} only: {self.unreadable_elsewhere}"
