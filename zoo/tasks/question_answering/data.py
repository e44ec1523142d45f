"""Reader of questions with contexts and answers: SQuAD's JSON, and tables of the same contents."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from zoo.data.readers.documents import iter_files
from zoo.data.readers.labelled import Columns, text_hash
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.readers.tables import Row, column_names, parse_cell, read_rows
from zoo.errors import VerificationError
from zoo.io.json import JsonItems
from zoo.io.limits import MAX_ARTICLE_BYTES, MAX_ARTICLE_VALUES
from zoo.io.numbers import is_number

COLUMNS = Columns(text="question", pair="context", label="answers")
ID = "id"
SQUAD = ".json"
SHOWN = 60  # characters of a text in messages


class AnswerSpan(msgspec.Struct, frozen=True):
    """An answer, as SQuAD stores it."""

    text: str
    answer_start: int  # Position in the context, in characters from 0.

    @property
    def end(self) -> int:
        """Position after the last character."""
        return self.answer_start + len(self.text)


@dataclass(frozen=True, slots=True)
class QuestionSample:
    """A question about a context."""

    question: str
    context: str
    answers: tuple[AnswerSpan, ...]  # Empty if the context has none.
    location: str  # File, line and id, for messages.

    @property
    def hash(self) -> float:
        """Hash that splits data; all questions about a context are on one side."""
        return text_hash(self.context)


class _Question(msgspec.Struct):
    id: str | int
    question: str
    answers: list[AnswerSpan] = []
    is_impossible: bool = False


class _Paragraph(msgspec.Struct):
    context: str
    qas: list[_Question]


class _Article(msgspec.Struct):
    paragraphs: list[_Paragraph]


class _Squad(msgspec.Struct):
    data: list[dict[str, Any]]


def review_question(sample: QuestionSample) -> Reviewed:
    """Return what is reviewed of a question about a context."""
    answers = tuple((answer.text, answer.answer_start) for answer in sample.answers)
    return Reviewed([sample.question, sample.context], None, identity=(sample.question, answers))


def read_questions(
    paths: Iterable[str | Path], columns: Columns = COLUMNS, problems: RowProblems | None = None
) -> list[QuestionSample]:
    """Return the questions of files, see ``iter_questions``."""
    return list(iter_questions(paths, columns, problems))


def iter_questions(
    paths: Iterable[str | Path], columns: Columns = COLUMNS, problems: RowProblems | None = None
) -> Iterator[QuestionSample]:
    """Yield the questions of files, with one article or row in memory at a time."""

    # ``.json`` is the format of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, arXiv:1606.05250; 2018,
    # arXiv:1806.03822). In tables, answers are objects such as ``{"text": ["a"], "answer_start":
    # [0]}``, as JSON text in TSV and CSV; a column ``id`` is optional. ``problems`` gets the
    # questions that cannot be used, such as one whose answer is not where ``answer_start`` points.
    def read(file: Path, file_problems: RowProblems) -> Iterator[QuestionSample]:
        squad = file.suffix.lower() == SQUAD
        samples = _squad(file) if squad else _rows(file, columns, file_problems)
        return file_problems.checked(samples, _with_answers)

    return iter_files(paths, read, problems, "questions", "give questions with answers")


def _squad(file: Path) -> Iterator[QuestionSample]:
    articles = JsonItems(file, "data", max_bytes=MAX_ARTICLE_BYTES, max_values=MAX_ARTICLE_VALUES)
    for number, article in enumerate(articles, start=1):
        for paragraph in _convert(article, _Article, f"{file}, article {number},").paragraphs:
            for item in paragraph.qas:
                answers = () if item.is_impossible else tuple(item.answers)
                location = f"{file}, question {item.id}"
                yield QuestionSample(item.question, paragraph.context, answers, location)
    _convert(articles.rest(), _Squad, str(file))


def _convert(value: Any, target_type: type[Any], location: str) -> Any:
    try:
        return msgspec.convert(value, target_type)
    except msgspec.ValidationError as error:
        raise VerificationError(
            f"{location} is not in the format of SQuAD: {error}", "correct it"
        ) from error


def _rows(file: Path, columns: Columns, problems: RowProblems) -> Iterator[QuestionSample]:
    question = columns.text
    context = columns.pair or COLUMNS.pair or ""
    answers = columns.label
    names = [question, context, answers]
    if not all(map(is_number, names)) and ID in column_names(file):
        names.append(ID)

    def sample(row: Row) -> QuestionSample:
        location = row.location
        values = row.values
        location = f"{location}, question {values[ID]}" if ID in values else location
        return QuestionSample(
            row.text(question),
            row.text(context),
            _answers(values[answers], location),
            location,
        )

    return problems.checked(read_rows(file, names, problems), sample)


def _answers(value: Any, location: str) -> tuple[AnswerSpan, ...]:
    """Return the answers of a cell: an object of lists, or a list of objects."""
    if isinstance(value, str):
        value = parse_cell(value, location) if value.strip() else []
    if isinstance(value, dict):
        texts = value.get("text")
        starts = value.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise RowError(f"{location}: answers without lists text and answer_start of one length")
        value = [dict(text=t, answer_start=s) for t, s in zip(texts, starts, strict=True)]
    try:
        return tuple(_convert(value or [], list[AnswerSpan], location))
    except VerificationError as error:
        raise RowError(error.what) from error


def _with_answers(sample: QuestionSample) -> QuestionSample:
    """Return a sample after checking that its context has the answers at their positions."""
    for answer in sample.answers:
        start = answer.answer_start
        end = answer.end
        if not answer.text or start < 0 or sample.context[start:end] != answer.text:
            there = sample.context[max(start, 0) : max(end, 0)]
            raise RowError(
                f"{sample.location}: the answer {answer.text[:SHOWN]!r} is not at {start} of its "
                f"context, where {there[:SHOWN]!r} is",
                "correct answer_start, in characters from 0",
            )
    return sample
