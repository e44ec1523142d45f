"""Examples before a prompt (in-context learning, Brown et al. 2020, arXiv:2005.14165)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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


def demonstrations(
    template: PromptTemplate, shots: Sequence[Shot], words: Mapping[str, str], separator: str
) -> str:
    """Return the text of examples before a prompt, each followed by the separator."""
    filled = [
        template.fill(shot.text, shot.pair, word_of(words, shot.label, shot.location)).text
        for shot in shots
    ]
    return "".join(text + separator for text in filled)
