"""Corpora and objectives, and the batches that the reference makes of them."""

from typing import Any

import numpy as np
import torch
from msgspec.structs import replace

from tests.objectives.pieces import SIZE, WORDS
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.objectives.base import Example
from zoo.objectives.masked import MaskedLanguageModelling
from zoo.objectives.sentence_pairs import NextSentence, PairOptions, SentencePairs
from zoo.objectives.span_boundary import SpanBoundary
from zoo.plugins import get_family


def small(family: str) -> Any:
    changes = {"vocab_size": SIZE, "max_positions": 40, "pad_token_id": 0}
    config = get_family(family).sizes()["tiny"]
    known = {name: value for name, value in changes.items() if name in config.__struct_fields__}
    return replace(config, **known)


def corpus(seed: int = 0, documents: int = 30) -> Split:
    rng = generator(seed)
    made = [rng.integers(5, SIZE, size=size).tolist() for size in rng.integers(1, 60, documents)]
    return Split.from_documents([[document] for document in made])


def made(task: MaskedLanguageModelling, split: Split) -> list[Example]:
    laid = task.dataset(split, 0)
    return [laid.example(k, generator(1, k)) for k in range(len(laid))]


def reference_batch(rows: list[Example]) -> dict[str, torch.Tensor]:
    """Return a batch in the reference library's format, with labels of -100 for other tokens."""
    batch: dict[str, Any] = {n: np.stack([row.arrays[n] for row in rows]) for n in rows[0].arrays}
    labels = np.full(batch["input_ids"].shape, -100)
    for number, row in enumerate(rows):
        labels[number, row.positions["label_positions"][1]] = row.values["labels"]
    batch |= {"labels": labels, "attention_mask": (batch["document_ids"] > 0).astype(int)}
    del batch["position_ids"], batch["document_ids"]
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def one_a_row(rows: list[Example]) -> list[Example]:
    """Return the rows of one text; the reference library supports no packed rows.

    Its local attention is NaN where padding is longer than the window.
    """
    ids = [row.arrays["document_ids"] for row in rows]
    return [row for row, of in zip(rows, ids, strict=True) if of.max() == 1 and (of == 0).sum() < 8]


def objective(kind: type[SentencePairs], length: int = 32, **options: Any) -> SentencePairs:
    family = "bert" if kind is NextSentence else "albert"
    return kind(WORDS, small(family), length, PairOptions(**options))


def span_boundary(family: str = "bert") -> SpanBoundary:
    return SpanBoundary(WORDS, small(family), 40)
