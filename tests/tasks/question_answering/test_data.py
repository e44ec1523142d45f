"""Questions with answers, in SQuAD's JSON and in tables, and multiple-choice questions."""

import csv
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.question_answering.making import CONTEXT, squad
from zoo.data.readers.labelled import Columns
from zoo.errors import UsageError, VerificationError
from zoo.tasks.multiple_choice.data import ChoiceColumns, read_choices
from zoo.tasks.question_answering.data import (
    AnswerSpan,
    QuestionSample,
    iter_questions,
    read_questions,
)

TWO = {"text": ["the cat", "cat"], "answer_start": [18, 22]}
NONE: dict[str, Any] = {"text": [], "answer_start": []}
ROWS = [
    {"id": "q1", "title": "x", "context": CONTEXT, "question": "who?", "answers": TWO},
    {"id": "q2", "title": "x", "context": CONTEXT, "question": "when?", "answers": NONE},
]
EXPECTED = [
    ("who?", CONTEXT, (AnswerSpan("the cat", 18), AnswerSpan("cat", 22))),
    ("when?", CONTEXT, ()),
]


def contents(samples: list[QuestionSample]) -> list[Any]:
    return [(sample.question, sample.context, sample.answers) for sample in samples]


def test_squad(tmp_path: Path) -> None:
    """The plausible answers of an impossible question are none."""
    answers = [{"text": "the cat", "answer_start": 18}, {"text": "cat", "answer_start": 22}]
    plausible = {"plausible_answers": answers[:1], "answers": [], "is_impossible": True}
    path = squad(
        tmp_path / "t.json",
        {"id": "q1", "question": "who?", "answers": answers},
        {"id": "q2", "question": "when?", **plausible},
    )
    assert contents(read_questions([path])) == EXPECTED
    assert read_questions([path])[0].location.endswith("t.json, question q1")


@pytest.mark.long
def test_an_article_of_squad_is_in_memory_at_once(tmp_path: Path) -> None:
    article = {"paragraphs": [{"context": "x" * 10_000, "qas": [{"id": 1, "question": "why?"}]}]}
    (tmp_path / "t.json").write_text(json.dumps({"data": [article] * 1500}))  # 15 MB
    tracemalloc.start()
    count = sum(1 for _ in iter_questions([tmp_path / "t.json"]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 1500 and peak < 8 << 20


def test_tables_of_questions(tmp_path: Path) -> None:
    pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows({**row, "answers": json.dumps(row["answers"])} for row in ROWS)
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "t.parquet")
    for suffix in ("jsonl", "csv", "parquet"):
        assert contents(read_questions([tmp_path / f"t.{suffix}"])) == EXPECTED, suffix


def test_columns_of_other_names_and_answers_as_objects(tmp_path: Path) -> None:
    row = {"q": "who?", "text": CONTEXT, "a": [{"text": "cat", "answer_start": 22}]}
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    (sample,) = read_questions([tmp_path / "t.jsonl"], Columns("q", "a", "text"))
    assert sample.answers == (AnswerSpan("cat", 22),)
    with pytest.raises(UsageError, match=r"t\.jsonl:1 has no column 'question'"):
        read_questions([tmp_path / "t.jsonl"])


@pytest.mark.parametrize("start", [17, -1, 500])
def test_an_answer_that_is_not_there(tmp_path: Path, start: int) -> None:
    answer = {"text": "the cat", "answer_start": start}
    path = squad(tmp_path / "t.json", {"id": 7, "question": "who?", "answers": [answer]})
    message = rf"t\.json, question 7: the answer 'the cat' is not at {start} of its context, where "
    with pytest.raises(UsageError, match=message):
        read_questions([path])
    if start == 17:
        with pytest.raises(UsageError, match=r"where ' the ca' is; correct answer_start"):
            read_questions([path])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "missing required field `context`"),
        ('{"data": [', "is not JSON"),
        ('{"data": [3]}', r"Expected `object`, got `int` - at `\$\.data\[0\]`"),
        ('{"date": []}', "missing required field `data`"),
        ('[{"data": []}]', "Expected `object`, got `array`"),
        ('{"data": [{"paragraphs": []}, [1]]}', "article 2, is not in the format of SQuAD"),
        ('{"data": []}', "has no questions"),
    ],
)
def test_files_that_are_not_squad(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises((VerificationError, UsageError), match=message):
        read_questions([tmp_path / "t.json"])


SWAG = {"sent1": "A man sits.", "sent2": "He", "ending0": "runs.", "ending1": "eats.", "label": 1}
RACE = {"article": "Text.", "question": "The _ is", "options": ["x", "y"], "answer": "B"}
HELLASWAG = {"ctx_a": "A", "ctx_b": "b", "ctx": "A b", "endings": ["x", "y", "z"], "label": "2"}
ARC = {"question": "Why?", "choices": {"text": ["p", "q"], "label": ["1", "2"]}, "answerKey": "2"}
PLAIN = {"context": "C", "start": "It", "choices": ["runs", "eats"], "label": "eats"}


@pytest.mark.parametrize(
    ("row", "columns", "pairs", "label"),
    [
        (SWAG, {}, [("A man sits.", "He runs."), ("A man sits.", "He eats.")], 1),
        (RACE, {}, [("Text.", "The x is"), ("Text.", "The y is")], 1),
        (HELLASWAG, {}, [("A b", "x"), ("A b", "y"), ("A b", "z")], 2),
        (ARC, {"text": "question"}, [("Why?", "p"), ("Why?", "q")], 1),
        (PLAIN, {}, [("C", "It runs"), ("C", "It eats")], 1),
    ],
    ids=["swag", "race", "hellaswag", "arc", "plain"],
)
def test_choices_of_published_tables(
    tmp_path: Path, row: Any, columns: Any, pairs: Any, label: int
) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    (sample,) = read_choices([tmp_path / "t.jsonl"], ChoiceColumns(**columns))
    assert (sample.pairs, sample.label) == (pairs, label)


def test_choices_in_columns_of_commas(tmp_path: Path) -> None:
    """``ending10`` is after ``ending2``, and named columns replace those that would be used."""
    names = ["sent1", "sent2", "ending0", "ending10", "ending2", "label"]
    (tmp_path / "t.csv").write_text(f"{','.join(names)}\na,b,c0,c10,c2,2\n")
    (sample,) = read_choices([tmp_path / "t.csv"])
    assert sample.choices == ("c0", "c2", "c10") and sample.label == 2
    columns = ChoiceColumns(choices=("ending10", "ending0"), label="sent1")
    (tmp_path / "t.csv").write_text(f"{','.join(names)}\nA,b,c0,c10,c2,2\n")
    (sample,) = read_choices([tmp_path / "t.csv"], columns)
    assert (sample.choices, sample.label) == (("c10", "c0"), 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 2}, r"t\.jsonl:1: label is 2, which is none of the 2 choices; give a number"),
        ({"label": None}, r"label is None, which is none"),
        ({"label": True}, r"label is True, which is none"),
        ({"choices": ["x"]}, r"t\.jsonl:1: choices is not a list of two choices or more"),
        ({"choices": ["x", 3]}, r"choices is 3, which is not text"),
    ],
)
def test_choices_that_are_wrong(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({**PLAIN, **change}))
    with pytest.raises(UsageError, match=message):
        read_choices([tmp_path / "t.jsonl"])


def test_a_column_of_choices_that_is_not_there(tmp_path: Path) -> None:
    row = {"context": "a", "choises": ["x", "y"], "label": 0}
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    with pytest.raises(UsageError, match="has no column 'choices'; did you mean choises"):
        read_choices([tmp_path / "t.jsonl"])
