"""Files of SentEval's transfer and probing tasks (Conneau and Kiela 2018, arXiv:1803.05449)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from zoo.data.readers.problems import RowError
from zoo.data.readers.tab_columns import join_words, read_tab_rows
from zoo.data.readers.text_io import read_lines
from zoo.errors import SourceError
from zoo.io.paths import readable_name

TREC_LABELS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
BINARY_LABELS = ("0", "1")
# Columns of MRPC, counted from 0.
MRPC_LABEL = 0
MRPC_TEXT = 3
# Probing task -> its file. The names are SentEval's.
PROBING_FILES: Mapping[str, str] = {
    "Length": "sentence_length.txt",
    "WordContent": "word_content.txt",
    "Depth": "tree_depth.txt",
    "TopConstituents": "top_constituents.txt",
    "BigramShift": "bigram_shift.txt",
    "Tense": "past_present.txt",
    "SubjNumber": "subj_number.txt",
    "ObjNumber": "obj_number.txt",
    "OddManOut": "odd_man_out.txt",
    "CoordinationInversion": "coordination_inversion.txt",
}
PROBING_SPLITS = ("tr", "va", "te")


class LabelledRow(NamedTuple):
    """One text or two, and the index of their class."""

    texts: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class ProbingData:
    """The three parts of a probing task, with the names of its classes."""

    train: list[LabelledRow]
    validation: list[LabelledRow]
    test: list[LabelledRow]
    labels: Sequence[str]


def read_class_file(path: Path, label: int) -> list[LabelledRow]:
    """Return the texts of a file with one class: MR, CR, SUBJ and MPQA have two of them."""
    rows = []
    for line in read_lines(path, rows=True, encoding="latin-1"):
        rows.append(LabelledRow((join_words(line),), label))
    if not rows:
        raise SourceError(f"{path} has no texts", "download it again")
    return rows


def read_sst(path: Path) -> list[LabelledRow]:
    """Return the sentences of ``sentiment-train`` and so on: a sentence, a tab, 0 or 1."""
    rows = []
    for row in read_tab_rows(path, 2):
        label = _index(row.cells[1].strip(), BINARY_LABELS, row.location)
        rows.append(LabelledRow((join_words(row.cells[0]),), label))
    return rows


def read_trec(path: Path) -> list[LabelledRow]:
    """Return the questions of ``train_5500.label`` and so on: ``DESC:manner How did ...``."""
    rows = []
    name = readable_name(path)
    for number, line in enumerate(read_lines(path, rows=True, encoding="latin-1"), 1):
        if not line:
            continue
        coarse, colon, fine_and_text = line.partition(":")
        _, space, text = fine_and_text.partition(" ")
        if not colon or not space:
            raise RowError(
                f"{name}:{number} is {line[:60]!r}, not a question with its class",
                "a line is CLASS:SUBCLASS and a question",
            )
        label = _index(coarse, TREC_LABELS, f"{name}:{number}")
        rows.append(LabelledRow((join_words(text),), label))
    if not rows:
        raise SourceError(f"{path} has no questions", "download it again")
    return rows


def read_mrpc(path: Path) -> list[LabelledRow]:
    """Return the pairs of ``msr_paraphrase_train.txt`` and so on."""
    rows = []
    for row in read_tab_rows(path, MRPC_TEXT + 2, header=True):
        label = _index(row.cells[MRPC_LABEL].strip(), BINARY_LABELS, row.location)
        first, second = row.cells[MRPC_TEXT : MRPC_TEXT + 2]
        rows.append(LabelledRow((join_words(first), join_words(second)), label))
    return rows


def read_probing(path: Path) -> ProbingData:
    """Return the sentences of a probing task: a split, a class, and last a sentence.

    The classes are those of the training split, sorted.
    """
    named_rows: dict[str, list[tuple[str, str, str]]] = {split: [] for split in PROBING_SPLITS}
    for row in read_tab_rows(path, 3):
        split = row.cells[0]
        if split not in named_rows:
            raise RowError(
                f"{row.location} is of the split {split[:20]!r}",
                f"the first column is one of {', '.join(PROBING_SPLITS)}",
            )
        named_rows[split].append((row.cells[1], join_words(row.cells[-1]), row.location))
    for split, split_rows in named_rows.items():
        if not split_rows:
            raise SourceError(f"{path} has no rows of the split {split}", "download it again")
    labels = sorted({label for label, _, _ in named_rows["tr"]})
    splits = {}
    for split, split_rows in named_rows.items():
        rows = []
        for label, text, location in split_rows:
            rows.append(LabelledRow((text,), _index(label, labels, location)))
        splits[split] = rows
    return ProbingData(splits["tr"], splits["va"], splits["te"], labels)


def _index(label: str, labels: Sequence[str], location: str) -> int:
    """Return the index of a class."""
    if label not in labels:
        shown = ", ".join(labels[:8])
        raise RowError(
            f"{location} has the label {label[:40]!r}, which the task does not have",
            f"it has {shown}" + (" and more" if len(labels) > 8 else ""),
        )
    return labels.index(label)
