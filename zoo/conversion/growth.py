"""Record of a model that got more positions, in a report and a manifest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Growth:
    """How a model got more positions, and what that changed.

    Attributes:
        old_max_seq_len: number of tokens that the model read.
        max_seq_len: number of tokens that it reads now.
        method: a scaling of rotary frequencies by its ``rope_type``, or how the new rows of tables
            got their values.
        tables: names of the tables of learned positions.
        new_parameters: number of parameters that it has in addition.
        before: metrics of the old model on texts; ``None`` if there were none.
        after: metrics of the new model on these texts.
    """

    old_max_seq_len: int
    max_seq_len: int
    method: str
    tables: tuple[str, ...] = ()
    new_parameters: int = 0
    before: Metrics | None = None
    after: Metrics | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for ``--json`` and the manifest."""
        return {
            "old_max_seq_len": self.old_max_seq_len,
            "max_seq_len": self.max_seq_len,
            "method": self.method,
            "tables": list(self.tables),
            "before": None if self.before is None else dict(self.before),
            "after": None if self.after is None else dict(self.after),
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report for a terminal."""
        what = ", ".join(self.tables) or "rotary frequencies"
        lengths = f"{self.old_max_seq_len:,} to {self.max_seq_len:,} tokens"
        yield f"  positions    {lengths} by {self.method}: {what}"
        if self.before is None or self.after is None:
            return
        old = f"{self.before['perplexity']:.4g} before, of {self.old_max_seq_len:,} tokens at once"
        new = f"{self.after['perplexity']:.4g} after, of {self.max_seq_len:,}"
        yield f"  perplexity   {old}; {new}"
