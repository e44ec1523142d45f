"""Rows of objectives in the order of runs that earlier versions began.

``tests/golden/earlier_rows.json`` was written by ``python -m tests.objectives.earlier_rows FILE``
with the code of commit 1257e998, the last one with only this order.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from tests.families import elmo_streams
from tests.families.xlnet import test_objective as xlnet
from tests.objectives import making, test_causal, test_infilling, test_seq2seq
from tests.objectives.pieces import SIZE, WORDS
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.objectives.masked import MaskedLanguageModelling
from zoo.objectives.sentence_pairs import NextSentence

RECORD = Path(__file__).parents[1] / "golden" / "earlier_rows.json"
LENGTH = 32
STEPS = 12  # rows of the training data that are compared, at the beginning of two epochs

OBJECTIVES: dict[str, Callable[[], Any]] = {
    "masked-lm": lambda: MaskedLanguageModelling(WORDS, making.small("bert"), LENGTH),
    "next-sentence": lambda: making.objective(NextSentence, LENGTH),
    "causal-lm": lambda: test_causal.objective(LENGTH),
    "causal-lm without an end": lambda: test_causal.objective(LENGTH, test_causal.NO_END),
    "span-corruption": lambda: test_seq2seq.objective(
        "span-corruption", LENGTH, concat_documents=True
    ),
    "span-corruption in documents": lambda: test_seq2seq.objective("span-corruption", LENGTH),
    "prefix-lm": lambda: test_seq2seq.objective("prefix-lm", LENGTH, concat_documents=True),
    "prefix-lm in documents": lambda: test_seq2seq.objective("prefix-lm", LENGTH),
    "text-infilling": lambda: test_infilling.objective("text-infilling", LENGTH),
    "bidirectional-lm": lambda: elmo_streams.objective(LENGTH),
    "permutation-lm": xlnet.objective,
}


def documents() -> Split:
    """Return 150 documents of one to six sentences of up to 20 tokens."""
    rng = generator(7)
    made = []
    for _ in range(150):
        sizes = rng.integers(1, 20, size=int(rng.integers(1, 6)))
        made.append([rng.integers(10, min(SIZE, 40), size=size).tolist() for size in sizes])
    return Split.from_documents(made)


def digest_rows(objective: Any, split: Split, order: Any) -> dict[str, Any]:
    """Return the number of rows, and digests of those that two epochs begin with."""
    dataset = objective.dataset(split, 3)
    digests = []
    for epoch in range(2):
        for step in range(STEPS):
            row = dataset.example(
                order(len(dataset))[epoch * len(dataset) + step], generator(3, epoch, step)
            )
            content = blake3()
            for name, array in {**row.arrays, **row.values}.items():
                content.update(name.encode())
                content.update(np.ascontiguousarray(array).tobytes())
            digests.append(content.hexdigest(8))
    return {"rows": len(dataset), "digests": digests}


def main() -> None:
    """Record the rows with the code of the commit."""
    from zoo.finetuning.order import EpochShuffle

    rows = {}
    for name, make in OBJECTIVES.items():
        rows[name] = digest_rows(make(), documents(), lambda count: EpochShuffle(count, 3))
    Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
