"""Every objective of every family learns 20 sentences by heart: its accuracies reach 1."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.cases import cases, dry
from tests.training.runs import small
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.objectives.base import Batch, Objective
from zoo.training.setup import TrainSetup, build_setup

pytestmark = pytest.mark.usefixtures("shared_home")
SENTENCES, PER_DOCUMENT, MAX_STEPS, EVERY = 20, 2, 600, 10
TOKENS = range(4, 17)  # of a sentence
Metrics = Mapping[str, tuple[Tensor, Tensor]]


def sentences(split: Split) -> Iterator[list[int]]:
    """Yield sentences of which no two have the same first, second or last token.

    So every token follows from those before it in its document, and from those after it.
    """
    seen: set[tuple[int, int]] = set()
    for start, end in zip(split.sentences[:-1], split.sentences[1:], strict=True):
        if end - start in TOKENS:
            tokens = split.read(int(start), int(end)).tolist()
            ends = {(0, tokens[0]), (1, tokens[-1])}
            if not seen & ends:
                seen |= ends
                yield tokens


def few_documents(split: Split) -> Split:
    """Return documents of two sentences each, 20 sentences in all."""
    chosen = [tokens for tokens, _ in zip(sentences(split), range(SENTENCES), strict=False)]
    assert len(chosen) == SENTENCES
    return Split.from_documents(
        [chosen[k : k + PER_DOCUMENT] for k in range(0, SENTENCES, PER_DOCUMENT)]
    )
