"""Forms of text-to-text data: how the row of a table becomes a source text and a target text."""

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from zoo.data.readers.glue import PREFIX, glue_files, glue_task
from zoo.data.readers.labelled import (
    Columns,
    Sample,
    label_name,
    label_number,
    label_texts,
    match_label,
)
from zoo.data.readers.problems import RowError
from zoo.errors import UsageError

Texts = str | Mapping[str, str] | None  # a text for all data sets, or by their names
STEPS = 5  # values of numbers as targets from one whole number to the next


@dataclass(frozen=True)
class TextForm:
    """Format of a row of a table as a source text and a target text."""

    columns: Columns  # Texts in their order in the source, and the label.
    prefix: str = ""  # Text before the first text.
    pair_prefix: str = ""  # Text between the two texts of a pair, after a space.
    # Label -> its word; without words, a label is the target itself.
    words: Mapping[str, str] = field(default_factory=dict)
    # Whether labels are numbers, which become multiples of 0.2 with one decimal.
    rounded: bool = False
    metrics: tuple[str, ...] = ()  # Metrics in addition to ``exact_match``.

    @property
    def default_metric(self) -> str | None:
        """Metric that selects the best checkpoint, or ``None`` for ``exact_match``."""
        if not self.metrics or self.metrics[0] == "f1":
            return None
        return self.metrics[0]

    @property
    def classes(self) -> int | None:
        """Number of labels; ``None`` for numbers."""
        return None if self.rounded else len(self.words)

    def source(self, sample: Sample) -> str:
        """Return the source of a sample."""
        source = f"{self.prefix}{sample.text}"
        if sample.pair is not None:
            source += f" {self.pair_prefix}{sample.pair}"
        return source

    def targets(self, sample: Sample) -> tuple[str, ...]:
        """Return the correct targets of a sample; models are trained on the first."""
        label = sample.label
        location = sample.location
        if self.rounded:
            number = np.float32(label_number(label, location))
            return (f"{np.round(number * np.float32(STEPS)) / STEPS:.1f}",)
        if self.words:
            word = self.words.get(match_label(label_name(label, location), self.words))
            if word is None:
                raise RowError(f"{location}: the label is {label!r}, not {' or '.join(self.words)}")
            return (word,)
        return label_texts(label, location, "target")


def glue_form(name: str) -> TextForm:
    """Return the form of a task of GLUE, such as ``glue/mrpc``.

    GLUE has the forms of Raffel et al. 2020 (arXiv:1910.10683, appendix D, and ``glue`` and
    ``stsb`` of data/preprocessors.py in the released code).
    """
    task = glue_task(name)
    short_name = name.removeprefix(PREFIX)
    if not task.keys:
        raise UsageError(
            f"{name} has no form as text: in the paper's, the model names the noun of a pronoun",
            "leave it out",
        )
    columns = dict(zip(task.keys, (task.text, task.pair), strict=False))
    # As in the released code, texts are in the alphabetical order of their keys.
    keys = sorted(columns)
    text_key = keys[0]
    pair_column = None
    pair_prefix = ""
    if len(keys) > 1:
        pair_key = keys[1]
        pair_column = columns[pair_key]
        pair_prefix = f"{pair_key}: "
    return TextForm(
        Columns(columns[text_key] or "", task.label, pair_column),
        prefix=f"{short_name} {text_key}: ",
        pair_prefix=pair_prefix,
        words=task.words,
        rounded=task.task == "regression",
        metrics=tuple(metric for metric in task.metrics if metric != "accuracy"),
    )


def form_of(
    name: str, columns: Columns, prefix: Texts = None, pair_prefix: Texts = None
) -> TextForm:
    """Return the form of a data set.

    ``glue/NAME`` has its own. By default, a prefix is the name of the data set, and pairs are as in
    GLUE: ``NAME TEXT: ... PAIR: ...``, with names of columns.
    """
    if name.startswith(PREFIX):
        return glue_form(name)
    if columns.pair is None:
        default_prefix = f"{name}: " if name else ""
        return TextForm(columns, _text_for(name, prefix, default_prefix))
    default_prefix = f"{name} {columns.text}: ".lstrip()
    return TextForm(
        columns,
        _text_for(name, prefix, default_prefix),
        _text_for(name, pair_prefix, f"{columns.pair}: "),
    )


def _text_for(name: str, texts: Texts, default: str) -> str:
    """Return the text for a data set."""
    if isinstance(texts, str):
        return texts
    if texts is None:
        return default
    return texts.get(name, default)


def glue_tables(paths: Sequence[str], split: Literal["train", "dev"]) -> list[str]:
    """Replace paths such as ``glue/NAME=DIR`` by the files of a split."""
    tables = list[str]()
    for path in paths:
        name, _, folder = path.partition("=")
        if not (name.startswith(PREFIX) and os.path.isdir(folder)):
            tables.append(path)
            continue
        train_file, dev_files = glue_files(glue_task(name), Path(folder))
        files = [train_file] if split == "train" else dev_files
        tables += [f"{name}={file}" for file in files]
    return tables
