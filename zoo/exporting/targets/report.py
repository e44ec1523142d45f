"""Record of an export to a runtime, which the manifest contains and the command prints."""

from collections.abc import Iterator
from typing import Any

import msgspec

from zoo.exporting.report import Agreement, ShapeCheck
from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct
from zoo.io.numbers import format_bytes


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


class TargetReport(JsonStruct):
    """Description of a model that was exported to a runtime, and its comparison with torch."""

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
            count, worst = sum(check.batch for check in texts), max(c.worst for c in texts)
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
