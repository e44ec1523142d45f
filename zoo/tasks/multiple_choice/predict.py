"""Choice of one of several texts for a context, by a model that scores them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.numbers import softmax
from zoo.inference.processing.records import RecordKeys, TextExample, as_records, validate_text
from zoo.inference.task import BatchTask, EncodedExample, EncodedTexts
from zoo.inference.task_checks import require_finite
from zoo.overrides import override
from zoo.tasks.multiple_choice.data import CHOICES, ChoiceInput, choice_texts

AXES = "batch choices"  # axes of the output with the scores

QUESTION = "question"  # key of the questions


class Choose(BatchTask):
    """Choice of one of several texts for a context, by a model that scores them.

    Records have the keys ``context``, ``choices``, a list of two texts or more, and optionally
    ``question``; a choice replaces ``_`` in the question, or follows it. Results have the keys
    ``label``, the index of the choice with the highest score, ``choice``, its text, ``score``, its
    probability, and ``scores``, the probabilities of all choices in order.

    The score of a choice does not depend on the other choices: batches have texts of similar
    length, each as the only choice of a question.
    """

    name: ClassVar[str] = "choose"
    output_keys: ClassVar[tuple[str, ...]] = ("label", "choice", "score", "scores")
    pairs: ClassVar[bool] = True
    keys: ClassVar[RecordKeys] = RecordKeys("context", ("context", QUESTION))
    chunk_size: int = 256

    @classmethod
    @override
    def columns(cls, options: dict[str, Any], text: str | None, pair: str | None) -> ChoiceInput:
        choices = tuple(options.pop("choice_columns"))
        reserved_keys = (CHOICES, *cls.output_keys, "truncated")
        return ChoiceInput(text, pair, reserved_keys, choices=choices)

    @classmethod
    @override
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        """Give all records the choices and the question of the command."""
        return with_choices(records, options.pop("choices"), options.pop("question")), options

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        outputs = self.checkpoint.head.outputs
        self.scores = next(name for name, axes in outputs.items() if axes == AXES)

    @override
    def validate(self, record: TextExample) -> None:
        super().validate(record)
        choices = record.extra.get(CHOICES)
        if not isinstance(choices, list | tuple) or len(choices) < 2:
            raise UsageError(
                f"{record.location} has no list of two {CHOICES} or more",
                f'give each record "{CHOICES}", or all of them --choice, twice or more',
            )
        for number, choice in enumerate(choices, 1):
            validate_text(choice, f"{record.location}: choice {number}")

    @override
    def tokenize(self, records: list[TextExample], first_row: int) -> list[EncodedExample]:
        texts: list[tuple[str, str]] = []
        counts = []
        for record in records:
            pairs = choice_texts(record.text, record.pair or "", record.extra[CHOICES])
            texts += pairs
            counts.append(len(pairs))
        encoded = self.encode(texts)
        items = list[EncodedExample]()
        start = 0
        for record, count in zip(records, counts, strict=True):
            record_texts = EncodedTexts(encoded[start : start + count])
            items.append(EncodedExample(record, record_texts, first_row + len(items)))
            start += count
        return items

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        inputs = {name: array[:, None] for name, array in batch.inputs.items()}
        logits = self.session.run(inputs, (self.scores,))[self.scores]  # (texts, 1)
        require_finite(logits, batch.mask, [item.record for item in items])
        return [{"logit": row[0]} for row in logits]

    @override
    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the choice with the highest score, the first of equal ones."""
        import numpy as np

        probabilities = softmax(np.array([row["logit"] for row in rows]))
        best = int(probabilities.argmax())
        return {
            "label": best,
            "choice": item.record.extra[CHOICES][best],
            "score": float(probabilities[best]),
            "scores": probabilities.tolist(),
        }


def choice_records(questions: Iterable[tuple[str, str, Sequence[str]]]) -> Iterator[TextExample]:
    """Yield records of contexts, questions and choices; messages number them from 1."""
    parts = list(questions)
    records = as_records((context, question) for context, question, _ in parts)
    for record, (_, _, choices) in zip(records, parts, strict=True):
        yield replace(record, extra={CHOICES: choices})


def with_choices(
    records: Iterable[TextExample], choices: Sequence[str], question: str | None = None
) -> Iterator[TextExample]:
    """Yield records with the same choices and question, which none may have already."""
    for record in records:
        if choices and CHOICES in record.extra:
            raise UsageError(f"{record.location} has {CHOICES} of its own", "leave out --choice")
        if question is not None and record.pair is not None:
            raise UsageError(f"{record.location} has a question of its own", "leave out --question")
        extra = {**record.extra, CHOICES: list(choices)} if choices else record.extra
        columns = record.columns
        if question is not None and columns is not None:
            columns = {**columns, QUESTION: question}
        pair = record.pair if question is None else question
        yield replace(record, pair=pair, extra=extra, columns=columns)
