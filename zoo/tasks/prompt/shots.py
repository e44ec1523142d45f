"""Examples before a prompt (in-context learning, Brown et al. 2020, arXiv:2005.14165)."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from zoo.data.readers.documents import expand_paths
from zoo.data.readers.labelled import (
    Columns,
    Sample,
    label_name,
    label_texts,
    read_samples,
    require_label,
)
from zoo.data.readers.tables import read_rows
from zoo.errors import UsageError
from zoo.tasks.prompt.template import RATIONALE, PromptTemplate, word_of


@dataclass(frozen=True)
class Shot:
    """An example: its texts, its label, and perhaps a chain of thought that leads to it."""

    text: str
    pair: str | None
    label: str
    location: str
    rationale: str | None = None


def read_shots(
    path: str | Path,
    columns: Columns,
    *,
    rationale: str | None = None,
    answers: bool = False,
) -> list[Shot]:
    """Return the labelled rows of a table.

    Args:
        path: the table.
        columns: its columns.
        rationale: column of the rationale, if there is one.
        answers: whether labels are answers of any kind, which may be lists, and not classes.
    """
    if rationale is None and not answers:
        return [shot_of(sample) for sample in read_samples([path], columns)]
    names = [columns.text, columns.label]
    names += [name for name in (columns.pair, rationale) if name is not None]
    shots = []
    for file in expand_paths([str(path)]):
        for row in read_rows(Path(file), names):
            pair = None if columns.pair is None else row.text(columns.pair)
            label = row.values[columns.label]
            require_label(label, f"{row.location} has no {columns.label}")
            name = label_texts(label, row.location, "answer")[0].strip()
            shots.append(
                Shot(
                    row.text(columns.text),
                    pair,
                    name if answers else label_name(label, row.location),
                    row.location,
                    None if rationale is None else row.text(rationale),
                )
            )
    return shots


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
    text = ""
    for shot in shots:
        if RATIONALE in template.slots and not (shot.rationale or "").strip():
            raise UsageError(
                f"{shot.location} has no rationale for the slot {{rationale}}",
                "give each example one, or leave the slot out",
            )
        word = word_of(words, shot.label, shot.location)
        filled = template.fill(shot.text, shot.pair, word, rationale=shot.rationale or "")
        text += filled.text + separator
    return text
