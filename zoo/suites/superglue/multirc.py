"""MultiRC: which answers to a question about a paragraph are correct, any number of them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from zoo.data.readers.problems import RowError
from zoo.data.readers.tables import Row
from zoo.overrides import override
from zoo.suites.answers import Answer, Item, json_lines, label_metrics
from zoo.suites.superglue.base import SuperGlueTask, convert_row, joined_texts

# Markup of the paragraphs; the code of Raffel et al. 2020 removes it in this way.
LINE_BREAK = "<br>"
BOLD = re.compile("</?b>")


class PossibleAnswer(msgspec.Struct):
    """An answer, with the label 1 if it is correct."""

    idx: int
    text: str
    label: int | None = None


class Question(msgspec.Struct):
    """A question with its answers."""

    idx: int
    question: str
    answers: list[PossibleAnswer]


class Paragraph(msgspec.Struct):
    """A paragraph with its questions."""

    text: str
    questions: list[Question]


class MultiRCRow(msgspec.Struct):
    """A line of the files."""

    idx: int
    passage: Paragraph


@dataclass(frozen=True, kw_only=True)
class MultiSentenceReading(SuperGlueTask):
    """MultiRC (Khashabi et al. 2018).

    The metrics are F1 over all answers (F1a), and the fraction of questions whose answers are all
    classified correctly. A classifier reads the paragraph, and the question with an answer.
    """

    @override
    def classifier_items(self, row: Row) -> Iterator[Item]:
        paragraph, answers = self._read_answers(row)
        for idx, question, answer, targets in answers:
            yield Item(
                idx=idx,
                location=row.location,
                text=paragraph,
                pair=without_markup(f"{question} {answer}"),
                targets=targets,
            )

    @override
    def text_to_text_items(self, row: Row) -> Iterator[Item]:
        paragraph, answers = self._read_answers(row)
        for idx, question, answer, targets in answers:
            texts = {"question": question, "answer": answer, "paragraph": paragraph}
            yield Item(
                idx=idx,
                location=row.location,
                text=without_markup(joined_texts(self.name, texts)),
                targets=targets,
            )

    def _read_answers(
        self, row: Row
    ) -> tuple[str, list[tuple[tuple[int, int, int], str, str, tuple[str, ...]]]]:
        """Return the paragraph, and number, question, text and label of each answer."""
        line = convert_row(row, MultiRCRow)
        answers = []
        for question in line.passage.questions:
            for answer in question.answers:
                idx = (line.idx, question.idx, answer.idx)
                targets: tuple[str, ...] = ()
                if answer.label is not None:
                    if answer.label not in (0, 1):
                        raise RowError(f"{row.location}: the label is {answer.label}, not 0 or 1")
                    targets = (self.labels[answer.label],)
                answers.append((idx, question.question, answer.text, targets))
        return without_markup(line.passage.text), answers

    @override
    def metrics(self, items: Sequence[Item], answers: Sequence[Answer]) -> dict[str, float]:
        questions: dict[tuple[int, int], bool] = {}
        for item, answer in zip(items, answers, strict=True):
            question = item.idx[:2]
            is_correct = answer.label == item.targets[0]
            questions[question] = questions.get(question, True) and is_correct
        f1 = label_metrics(["f1"], items, answers, self.labels)["f1"]
        return {"f1a": f1, "exact_match": sum(questions.values()) / len(questions)}

    @override
    def submission(self, items: Sequence[Item], answers: Sequence[Answer]) -> str:
        paragraphs: dict[int, dict[int, list[dict[str, Any]]]] = {}
        for item, answer in zip(items, answers, strict=True):
            paragraph, question, number = item.idx
            label = self.labels.index(self.choose_label(answer))
            question_answers = paragraphs.setdefault(paragraph, {}).setdefault(question, [])
            question_answers.append({"idx": number, "label": label})
        lines = []
        for paragraph, questions in paragraphs.items():
            entries = [{"idx": idx, "answers": labels} for idx, labels in questions.items()]
            lines.append({"idx": paragraph, "passage": {"questions": entries}})
        return json_lines(lines)


def without_markup(text: str) -> str:
    """Return a text without the markup of the files, which some paragraphs have."""
    return BOLD.sub("", text.replace(LINE_BREAK, " "))
