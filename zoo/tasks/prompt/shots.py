"""Examples before a prompt (in-context learning, Brown et al. 2020, arXiv:2005.14165)."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from zoo.data.readers.labelled import Columns, Sample, label_name, read_samples
from zoo.errors import UsageError
from zoo.tasks.prompt.template import PromptTemplate, word_of


@dataclass(frozen=True)
class Shot:
    """An example: its texts and its label."""

    text: str
    pair: str | None
    label: str
    location: str


def read_shots(path: str | Path, columns: Columns) -> list[Shot]:
    """Return the labelled rows of a table."""
    return [shot_of(sample) for sample in read_samples([path], columns)]


def shot_of(sample: Sample) -> Shot:
    """Return the example of a sample."""
    label = label_name(sample.label, sample.location)
    return Shot(sample.text, sample.pair, label, sample.location)


def select_shots(rows: Sequence[Shot], count: int, seed: int, source: str) -> list[Shot]:
    """Return some of the rows in a random order; both depend on the seed."""
    import numpy as np

    if count > len(rows):
        raise UsageError(
            f"{count} examples are more than the {len(rows)} rows of {source}",
            f"lower --shots to at most {len(rows)}",
        )
    order = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [rows[number] for number in order]


def read_orders(value: str | int) -> int | Literal["all"]:
    """Return the number of orders of examples that an option names, or ``all``."""
    if value == "all":
        return "all"
    text = str(value)
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(
            f"--orders {text!r:.40} is neither a number from 1 nor all", "write --orders N, or all"
        )
    return int(text)


def draw_orders(
    count: int, number: int | Literal["all"], seed: int, limit: int
) -> list[tuple[int, ...]]:
    """Return different orders of examples; the first one is that of their selection.

    Args:
        count: number of examples.
        number: number of orders, or ``all``, in lexicographic order.
        seed: the seed of the orders after the first.
        limit: number of orders that are allowed.

    Raises:
        UsageError: there are fewer orders, or more than the limit.
    """
    import numpy as np

    all_orders = math.factorial(count)
    if number == "all":
        if all_orders > limit:
            raise UsageError(
                f"{count} examples have {all_orders:,} orders",
                f"give --orders N, at most {limit:,}",
            )
        return list(itertools.permutations(range(count)))
    if number > all_orders:
        raise UsageError(
            f"--orders {number:,} are more than the {all_orders:,} orders of {count} examples",
            "give --orders all",
        )
    if number > limit:
        raise UsageError(f"--orders {number:,} are too many", f"give at most {limit:,}")
    rng = np.random.default_rng(seed)
    orders = {tuple(range(count)): None}  # A set that keeps its order.
    while len(orders) < number:
        orders[tuple(rng.permutation(count).tolist())] = None
    return list(orders)


def demonstrations(
    template: PromptTemplate, shots: Sequence[Shot], words: Mapping[str, str], separator: str
) -> str:
    """Return the text of examples before a prompt, each followed by the separator."""
    filled = [
        template.fill(shot.text, shot.pair, word_of(words, shot.label, shot.location)).text
        for shot in shots
    ]
    return "".join(text + separator for text in filled)
