"""Tasks on a text or a pair of texts: BoolQ, CB, RTE, WiC, the diagnostic sets, and COPA."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zoo.data.readers.problems import RowError
from zoo.data.readers.tables import Row
from zoo.overrides import override
from zoo.suites.answers import Answer, Item, label_number
from zoo.suites.superglue.base import SuperGlueTask, joined_texts

MARK = "*"  # Around the word of WiC.
# What a classifier reads after the premise of COPA, as in jiant.
QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


@dataclass(frozen=True, kw_only=True)
class PairTask(SuperGlueTask):
    """A label of a pair of texts.

    Attributes:
        columns: columns of both texts, in the order in which a classifier reads them.
        form_name: name of the task in the text-to-text form; by default its name.
        form_keys: name of a text in that form -> its column, in the order of the form.
        lowers_labels: whether labels are ``true`` and ``false`` on the leaderboard.
    """

    columns: tuple[str, str]
    form_name: str = ""
    form_keys: Mapping[str, str] = field(default_factory=dict)
    lowers_labels: bool = False

    @override
    def classifier_items(self, row: Row) -> Iterator[Item]:
        text, pair = self.classifier_texts(row)
        yield Item(
            idx=row.values["idx"],
            location=row.location,
            text=text,
            pair=pair,
            targets=self.targets(row),
            details=row.values.get("pair_id"),
        )

    def classifier_texts(self, row: Row) -> tuple[str, str]:
        """Return the pair of texts that a classifier reads."""
        return text_of(row, self.columns[0]), text_of(row, self.columns[1])

    @override
    def text_to_text_items(self, row: Row) -> Iterator[Item]:
        texts = {key: text_of(row, column) for key, column in self.form_keys.items()}
        yield Item(
            idx=row.values["idx"],
            location=row.location,
            text=joined_texts(self.form_name or self.name, texts),
            targets=self.targets(row),
            details=row.values.get("pair_id"),
        )

    @override
    def submitted_label(self, answer: Answer) -> Any:
        label = self.choose_label(answer)
        return label.lower() if self.lowers_labels else label


def text_of(row: Row, column: str) -> str:
    """Return the text of a column, which may be missing in a row of JSON lines."""
    if column not in row.values:
        raise RowError(f"{row.location} has no {column!r}", "use the files as published")
    return row.text(column)


@dataclass(frozen=True, kw_only=True)
class CommitmentBank(PairTask):
    """CB: accuracy, and the mean F1 of all three labels, whether they occur or not."""

    @override
    def metrics(self, items: Sequence[Item], answers: Sequence[Answer]) -> dict[str, float]:
        import numpy as np

        from zoo.metrics.classification import ClassCounts, class_scores
        from zoo.metrics.generated_labels import NO_LABEL

        actual = np.array([self.labels.index(item.targets[0]) for item in items])
        predicted = np.array([label_number(answer, self.labels) for answer in answers])
        # A text that is no label is a class of its own: it is wrong for all others.
        other_class = len(self.labels)
        predicted = np.where(predicted == NO_LABEL, other_class, predicted)
        counts = ClassCounts.of(actual, predicted, other_class + 1).first(other_class)
        return {
            "accuracy": float((predicted == actual).mean()),
            "f1_macro": float(class_scores(counts)["f1"].mean()),
        }


@dataclass(frozen=True, kw_only=True)
class WordInContext(PairTask):
    """WiC: whether a word has the same sense in two sentences.

    A classifier reads the sentences with ``*`` around the word. The paper's baseline reads no
    marks, and its head has the word's vectors in addition to that of ``[CLS]``; text-to-text models
    get the word after the sentences.
    """

    @override
    def classifier_texts(self, row: Row) -> tuple[str, str]:
        marked_texts = []
        for number, column in enumerate(self.columns, 1):
            text = text_of(row, column)
            start = row.values.get(f"start{number}")
            end = row.values.get(f"end{number}")
            if not (isinstance(start, int) and isinstance(end, int) and 0 <= start < end):
                raise RowError(f"{row.location}: start{number} and end{number} are not a span")
            marked = f"{MARK} {text[start:end]} {MARK}"
            marked_texts.append(f"{text[:start]}{marked}{text[end:]}")
        return marked_texts[0], marked_texts[1]


@dataclass(frozen=True, kw_only=True)
class PlausibleAlternatives(SuperGlueTask):
    """COPA: which of two sentences is the cause or the effect of another one."""

    @override
    def classifier_items(self, row: Row) -> Iterator[Item]:
        question = text_of(row, "question")
        if question not in QUESTIONS:
            raise RowError(
                f"{row.location}: the question is {question!r:.200}, not cause or effect"
            )
        yield Item(
            idx=row.values["idx"],
            location=row.location,
            text=f"{text_of(row, 'premise')} {QUESTIONS[question]}",
            choices=(text_of(row, "choice1"), text_of(row, "choice2")),
            targets=self.targets(row),
        )

    @override
    def text_to_text_items(self, row: Row) -> Iterator[Item]:
        keys = ("choice1", "choice2", "premise", "question")
        yield Item(
            idx=row.values["idx"],
            location=row.location,
            text=joined_texts(self.name, {key: text_of(row, key) for key in keys}),
            targets=self.targets(row),
        )

    @override
    def targets(self, row: Row) -> tuple[str, ...]:
        value = row.values.get("label")
        if value is None:
            return ()
        if value not in (0, 1) or isinstance(value, bool):
            raise RowError(f"{row.location}: the label is {value!r:.200}, not 0 or 1")
        return (self.labels[value],)

    @override
    def submitted_label(self, answer: Answer) -> Any:
        return self.labels.index(self.choose_label(answer))


@dataclass(frozen=True, kw_only=True)
class GenderParity(PairTask):
    """AX-g: accuracy, and the fraction of pairs of sentences with equal predictions.

    Both sentences of a pair only differ in the gender of a pronoun (Wang et al. 2019, section 3.3).
    """

    @override
    def metrics(self, items: Sequence[Item], answers: Sequence[Answer]) -> dict[str, float]:
        labels: dict[str, list[str]] = {}
        for item, answer in zip(items, answers, strict=True):
            labels.setdefault(str(item.details), []).append(answer.text)
        pairs = [texts for texts in labels.values() if len(texts) > 1]
        equal = sum(len(set(texts)) == 1 for texts in pairs)
        return {
            **super().metrics(items, answers),
            "gender_parity": equal / max(len(pairs), 1),
        }
