"""ReCoRD: which entity of a passage fills the gap of a query."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from zoo.data.readers.problems import RowError
from zoo.data.readers.tables import Row
from zoo.metrics.squad import answer_scores
from zoo.overrides import override
from zoo.suites.answers import Answer, Item, json_lines
from zoo.suites.superglue.base import BOOLEANS, SuperGlueTask, convert_row

PLACEHOLDER = "@placeholder"
# Headlines begin with this line; the code of Raffel et al. 2020 makes sentences of them.
HIGHLIGHT = "\n@highlight\n"
ENDED_HIGHLIGHT = re.compile(f"""([.?!"']){HIGHLIGHT}""")


class Span(msgspec.Struct):
    """Characters of a passage, with the last one."""

    start: int
    end: int


class CorrectAnswer(msgspec.Struct):
    """A mention of the entity that fills the gap."""

    text: str


class Query(msgspec.Struct):
    """A sentence with a gap, and the correct answers."""

    idx: int
    query: str
    answers: list[CorrectAnswer] | None = None


class Passage(msgspec.Struct):
    """A passage, and the mentions of its entities."""

    text: str
    entities: list[Span]


class ReCoRDRow(msgspec.Struct):
    """A line of the files."""

    idx: int
    passage: Passage
    qas: list[Query]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entity that may fill the gap of a query."""

    entity: str
    answers: tuple[str, ...]  # Correct answers of the query; empty in test files.


@dataclass(frozen=True, kw_only=True)
class CommonsenseReading(SuperGlueTask):
    """ReCoRD (Zhang et al. 2018); F1 and exact match, each the best over the correct answers.

    A classifier reads the passage, and the query with an entity in its gap; the answer is the
    entity with the largest probability of ``True``, the first of equal ones, in alphabetical order.
    A text-to-text model generates the entity. Equal mentions are one entity, as in the data sets
    of TensorFlow.
    """

    @override
    def classifier_items(self, row: Row) -> Iterator[Item]:
        line = convert_row(row, ReCoRDRow)
        passage = plain_passage(line.passage.text)
        for query in line.qas:
            answers = correct_answers(query)
            for entity in entity_names(line.passage, row.location):
                targets: tuple[str, ...] = ()
                if answers:
                    targets = (BOOLEANS[entity in answers],)
                yield Item(
                    idx=query.idx,
                    location=row.location,
                    text=passage,
                    pair=query.query.replace(PLACEHOLDER, entity),
                    targets=targets,
                    details=Candidate(entity, answers),
                )

    @override
    def text_to_text_items(self, row: Row) -> Iterator[Item]:
        line = convert_row(row, ReCoRDRow)
        passage = plain_passage(line.passage.text)
        entities = ", ".join(entity_names(line.passage, row.location))
        for query in line.qas:
            answers = correct_answers(query)
            yield Item(
                idx=query.idx,
                location=row.location,
                text=f"record query: {query.query} entities: {entities} passage: {passage}",
                targets=answers,
                details=Candidate("", answers),
            )

    @override
    def training_items(self, items: Sequence[Item], *, text_to_text: bool) -> Iterator[Item]:
        for item in items:
            # A query with several answers is as many samples, as in the code of Raffel et al. 2020.
            for target in item.targets:
                yield replace(item, targets=(target,))

    @override
    def metrics(self, items: Sequence[Item], answers: Sequence[Answer]) -> dict[str, float]:
        correct = {item.idx: item.details.answers for item in items}
        scores = []
        for idx, text in chosen_entities(items, answers).items():
            scores.append(answer_scores(text, correct[idx], unanswerable=False))
        exact_match = sum(exact for exact, _ in scores) / len(scores)
        f1 = sum(f1 for _, f1 in scores) / len(scores)
        return {"f1": f1, "exact_match": exact_match}

    @override
    def submission(self, items: Sequence[Item], answers: Sequence[Answer]) -> str:
        entities = chosen_entities(items, answers)
        return json_lines({"idx": idx, "label": text} for idx, text in entities.items())


def chosen_entities(items: Sequence[Item], answers: Sequence[Answer]) -> dict[int, str]:
    """Return the number of each query -> the entity that a model chooses or generates."""
    entities: dict[int, str] = {}
    best: dict[int, float] = {}
    for item, answer in zip(items, answers, strict=True):
        if not item.details.entity:
            entities[item.idx] = answer.text
            continue
        # A model that was trained on wrong entities only has no other label.
        probability = answer.probabilities.get(BOOLEANS[True], 0.0)
        if item.idx not in best or probability > best[item.idx]:
            best[item.idx] = probability
            entities[item.idx] = item.details.entity
    return entities


def plain_passage(text: str) -> str:
    """Return a passage in which headlines are sentences."""
    return ENDED_HIGHLIGHT.sub(r"\1 ", text).replace(HIGHLIGHT, ". ")


def entity_names(passage: Passage, location: str) -> list[str]:
    """Return the distinct entities of a passage, in alphabetical order."""
    names = set()
    for span in passage.entities:
        name = passage.text[span.start : span.end + 1]
        if span.start < 0 or not name:
            raise RowError(f"{location}: the entity from {span.start} to {span.end} has no text")
        names.add(name)
    if not names:
        raise RowError(f"{location}: the passage has no entities")
    return sorted(names)


def correct_answers(query: Query) -> tuple[str, ...]:
    """Return the distinct correct answers of a query, in alphabetical order."""
    if query.answers is None:
        return ()
    return tuple(sorted({answer.text for answer in query.answers}))
