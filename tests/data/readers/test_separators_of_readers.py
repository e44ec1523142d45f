"""Every reader of tables takes the separator that the rows agree on."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from zoo.data.readers.documents import ReaderConfig, read_documents
from zoo.data.readers.labelled import Columns, read_samples
from zoo.data.readers.problems import NoProblems
from zoo.data.readers.tables import read_table
from zoo.finetuning.embeddings.data import read_text_groups
from zoo.inference.processing.inputs import read_records
from zoo.tasks.causal_lm.data import read_completions
from zoo.tasks.likelihood.minimal_pairs import COLUMNS as PAIR_COLUMNS
from zoo.tasks.multiple_choice.data import read_choices
from zoo.tasks.prompt.unlabelled import read_unlabelled
from zoo.tasks.question_answering.data import read_questions
from zoo.tasks.reranker.data import ListColumns, read_lists
from zoo.tasks.retrieval.data import read_texts

Read = Callable[[Path], Any]
Rows = Sequence[Sequence[str]]
ANSWERS = '{"text": ["cat"], "answer_start": [4]}'
READERS: dict[str, tuple[Read, Rows]] = {
    "classification": (
        lambda path: [(s.text, s.label) for s in read_samples([path], Columns())],
        [("text", "label"), ("a, b", "yes"), ("c", "no")],
    ),
    "zoo run": (
        lambda path: [(r.text, r.extra) for r in read_records(source=str(path))],
        [("text", "label"), ("a, b", "yes"), ("c", "no")],
    ),
    "documents": (
        lambda path: list(read_documents([path], ReaderConfig())),
        [("text", "label"), ("a, b", "yes"), ("c", "no")],
    ),
    "completions": (
        lambda path: [(c.prompt, c.text) for c in read_completions([path], "text", "label")],
        [("text", "label"), ("a, b", "yes"), ("c", "no")],
    ),
    "unlabelled texts": (
        lambda path: [r.text for r in read_unlabelled([path], Columns())],
        [("text", "label"), ("a, b", "yes"), ("c", "no")],
    ),
    "groups of texts": (
        lambda path: [g.texts for g in read_text_groups([path], ("text", "pair"))],
        [("text", "pair"), ("a, b", "yes"), ("c", "no")],
    ),
    "lists of texts": (
        lambda path: [
            (t.text, t.documents) for t in read_lists([path], ListColumns("text", "pair", "label"))
        ],
        [("text", "pair", "label"), ("a, b", "yes", "1"), ("c", "no", "0")],
    ),
    "texts to search": (
        lambda path: read_texts([path]),
        [("_id", "text", "title"), ("1", "a, b", "t"), ("2", "c", "")],
    ),
    "minimal pairs": (
        lambda path: [r.values for r in read_table(path, PAIR_COLUMNS, NoProblems())],
        [PAIR_COLUMNS, ["a, b"] * len(PAIR_COLUMNS), ["c"] * len(PAIR_COLUMNS)],
    ),
    "choices": (
        lambda path: [(s.context, s.choices, s.label) for s in read_choices([path])],
        [("context", "ending0", "ending1", "label"), ("a, b", "c", "d", "1"), ("e", "f", "g", "0")],
    ),
    "questions": (
        lambda path: [(s.question, s.answers) for s in read_questions([path])],
        [("question", "context", "answers"), ("what, who", "the cat", ANSWERS)],
    ),
}


@pytest.mark.parametrize("delimiter", [";", "|", "\t"])
@pytest.mark.parametrize("name", READERS)
def test_a_csv_with_another_separator(tmp_path: Path, name: str, delimiter: str) -> None:
    read, rows = READERS[name]
    values = []
    for folder, separator in (("usual", ","), ("other", delimiter)):
        path = tmp_path / folder / "t.csv"
        path.parent.mkdir()
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter=separator).writerows(rows)
        values.append(read(path))
    assert values[0]
    assert values[0] == values[1]
