"""The task ``next-token``."""

from collections.abc import Sequence
from typing import Any, ClassVar

import click

from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.numbers import softmax
from zoo.inference.task import BatchTask, EncodedExample


class NextToken(BatchTask):
    """Most likely next tokens of a text, by a causal language model.

    Results have the key ``next``: tokens and their probabilities, the best first.

    Args:
        *args: see ``Task``.
        top_k: number of tokens.
        **options: see ``Task``.
    """

    name: ClassVar[str] = "next-token"
    heads: ClassVar[tuple[str, ...]] = ("causal-lm",)
    output_keys: ClassVar[tuple[str, ...]] = ("next",)
    options: ClassVar[Sequence[click.Option]] = (
        click.Option(
            ["--top-k"],
            type=click.IntRange(1),
            default=5,
            show_default=True,
            help="Number of tokens.",
        ),
    )

    def __init__(self, *args: Any, top_k: int = 5, **options: Any) -> None:
        super().__init__(*args, **options)
        self.top_k = top_k
        self.size = len(self.tokenizer.vocabulary())

    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        """See ``BatchTask``."""
        logits = self.output("logits", items, batch)  # (texts, tokens, vocabulary)
        last = batch.mask.sum(axis=1) - 1
        scores = softmax(logits[range(len(items)), last])
        named = scores[:, : self.size]  # embeddings may have more rows than there are tokens
        best = (-named).argsort(axis=1, kind="stable")[:, : self.top_k]
        return [
            {"next": [{"token": self.tokenizer.token(k), "score": float(row[k])} for k in tokens]}
            for row, tokens in zip(scores, best.tolist(), strict=True)
        ]
