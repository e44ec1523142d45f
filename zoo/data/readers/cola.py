"""Files of CoLA, the corpus of linguistic acceptability.

Warstadt et al. 2019, arXiv:1805.12471.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from zoo.data.readers.problems import RowError
from zoo.data.readers.tab_columns import read_tab_rows
from zoo.data.readers.text_io import read_lines
from zoo.errors import SourceError
from zoo.io.paths import readable_name

# Columns, counted from 0: source, label, the author's mark, sentence.
LABEL = 1
SENTENCE = 3
LABELS = ("0", "1")
SENTENCE_COLUMN = "Sentence"
# The annotated file has four columns before those of phenomena (Warstadt and Bowman 2019).
FIRST_PHENOMENON = 4
FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True, "": False}


class JudgedSentence(NamedTuple):
    """A sentence, and whether it is acceptable."""

    sentence: str
    label: int  # 0 or 1.


@dataclass(frozen=True)
class Annotations:
    """Sentences with a phenomenon of grammar; a sentence may have several."""

    sentences: Mapping[str, frozenset[str]]  # Phenomenon -> sentences.
    all_sentences: frozenset[str]


def read_cola(path: Path) -> list[JudgedSentence]:
    """Return the sentences of a file such as ``in_domain_dev.tsv``."""
    sentences = []
    for row in read_tab_rows(path, SENTENCE + 1):
        label = row.cells[LABEL].strip()
        if label not in LABELS:
            raise RowError(f"{row.location} has the label {label[:40]!r}", "a judgement is 0 or 1")
        sentences.append(JudgedSentence(row.cells[SENTENCE].strip(), LABELS.index(label)))
    return sentences


def read_annotations(path: Path) -> Annotations:
    """Return the phenomena of ``CoLA_grammatical_annotations_major_features.tsv`` or minor ones.

    Warstadt and Bowman 2019, arXiv:1901.03438. The first line has the names of the columns: one is
    ``Sentence``, and those from the fifth on are phenomena, with 1 for a sentence that has it.
    """
    header_line = next(read_lines(path, rows=True, strip=False), "")
    header = [name.strip() for name in header_line.split("\t")]
    if SENTENCE_COLUMN not in header or len(header) <= FIRST_PHENOMENON:
        raise SourceError(
            f"{readable_name(path)} has no column {SENTENCE_COLUMN}, or no phenomena",
            "give the annotated development set as it is published",
        )
    phenomena = header[FIRST_PHENOMENON:]
    sentence_column = header.index(SENTENCE_COLUMN)
    members: dict[str, set[str]] = {name: set() for name in phenomena}
    all_sentences = set()
    for row in read_tab_rows(path, len(header), header=True):
        sentence = row.cells[sentence_column].strip()
        all_sentences.add(sentence)
        for name, cell in zip(phenomena, row.cells[FIRST_PHENOMENON:], strict=False):
            flag = FLAGS.get(cell.strip())
            if flag is None:
                raise RowError(f"{row.location}: {name} is {cell[:40]!r}", "it is 0 or 1")
            if flag:
                members[name].add(sentence)
    sentences = {name: frozenset(texts) for name, texts in members.items()}
    return Annotations(sentences, frozenset(all_sentences))
