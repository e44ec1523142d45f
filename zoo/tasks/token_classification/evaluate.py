"""Evaluation of token classifiers on labelled words: accuracy, and scores of entities or labels."""

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import add, eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.label_warnings import warn_of_absent_labels
from zoo.data.readers.labelled import Columns, describe_labels
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import Reviewed
from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.evaluation.labelled_texts import WORD_CLASSIFICATION, require_evaluated
from zoo.inference.processing.records import TextExample
from zoo.inference.task import EncodedExample
from zoo.metrics.classification import ClassCounts, class_scores, f1_macro
from zoo.metrics.entities import (
    BEGIN,
    OUTSIDE,
    PREFIXES,
    SINGLE,
    entity_counts,
    entity_scores,
    split_tag,
)
from zoo.metrics.intervals import bootstrap_samples
from zoo.overrides import override
from zoo.tasks.token_classification.data import (
    IobRepair,
    WordsSample,
    first_tokens,
    is_iob,
    iter_words,
    marks_spans,
    repair_iob,
    word_starts,
)
from zoo.tasks.token_classification.predict import ClassifyTokens
from zoo.tasks.token_classification.results import WordResults, compare_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint


STARTS = "starts"  # key of a record: positions of its words


class ClassifyWords(ClassifyTokens):
    """The task with the words of the data, which may have spaces in them."""

    @override
    def word_starts(self, item: EncodedExample) -> list[int]:
        starts: list[int] = item.record.extra[STARTS]
        return starts


class TokenClassificationEvaluation(Evaluation):
    """Accuracy of words, and precision, recall and F1 of entities or labels."""

    # A word's label is predicted at its first token. A word that was truncated, or has no token,
    # counts as ``O``, or as wrong if labels do not mark spans. Spans in the data that begin with
    # ``I-`` are repaired, and labels in BIOES or BILOU, of the data or the model, are compared in
    # IOB2; see ``repair_iob``. Intervals are over sentences.

    name: ClassVar[str] = "token-classification"

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        label: str = "label",
        seed: int = 0,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns = Columns(text, label)
        self.seed = seed
        self.task = ClassifyWords(
            self.checkpoint, self.session, max_tokens=max_seq_len, doc_stride=doc_stride
        )
        # Words are compared in IOB2 if the model or the data has another scheme.
        self._repairs_predictions = not is_iob(self.checkpoint.config.labels)

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        require_evaluated(checkpoint, cls.name, WORD_CLASSIFICATION)

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        spans = marks_spans(self.checkpoint.config.labels)

        def read(problems: RowProblems) -> Iterator[WordsSample]:
            model_labels = frozenset(map(_in_iob, self.checkpoint.config.labels))
            known = partial(self._known, iob_labels=model_labels if spans else frozenset())
            return problems.checked(iter_words(files, self.columns, problems), known)

        samples = self.samples(read, lambda s: Reviewed(s.words, s.labels, s.labels))
        repair = IobRepair(files)
        for sample in samples:  # which finds what cannot be used, before anything is computed
            if spans:
                repair(sample)
        repair.warn()
        self._repairs_predictions |= repair.has_changes

        def actual() -> Iterable[WordsSample]:
            return map(repair, samples) if spans else samples

        guesses = self.observed(actual(), self._predictions(samples), self._row)
        pairs = zip(actual(), (labels for labels, _ in guesses), strict=True)
        return self._entities(pairs) if spans else self._labels(pairs)

    def _known(self, sample: WordsSample, *, iob_labels: Collection[str]) -> WordsSample:
        """Return a sample after checking that the model has each label, as it is or repaired."""
        labels = self.checkpoint.config.labels
        repaired = repair_iob(sample.labels) if iob_labels else sample.labels
        for word, (name, alternative) in enumerate(zip(sample.labels, repaired, strict=True)):
            if name not in labels and alternative not in iob_labels:
                raise RowError(
                    f"{sample.word_location(word)}: the model has no label {name!r}",
                    f"it has {describe_labels(labels, name)}",
                )
        return sample

    def _row(self, sample: WordsSample, guess: tuple[list[str], list[float]]) -> Prediction:
        predicted, probabilities = guess
        spans = marks_spans(self.checkpoint.config.labels)
        if spans:
            predicted = self._as_iob(predicted)
        counts = compare_words(sample.labels, predicted, has_spans=spans)
        return {
            "location": sample.location,
            "text": " ".join(sample.words),
            "words": list(sample.words),
            "label": list(sample.labels),
            "prediction": predicted,
            "probability": probabilities,
            **counts,
        }

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        return WordResults().mistake(row)

    def _predictions(
        self, samples: Iterable[WordsSample]
    ) -> Iterator[tuple[list[str], list[float]]]:
        """Yield the predicted labels of each sentence's words, and their probabilities."""
        # A word without a prediction has an empty label, and the probability 0.
        records = (
            TextExample(
                " ".join(s.words), extra={STARTS: word_starts(s.words)}, location=s.location
            )
            for s in samples
        )
        results = self.task.stream(records)
        for sample, (_, added) in zip(samples, results, strict=True):
            offsets = [(token["start"], token["end"]) for token in added["tokens"]]
            tokens = first_tokens(sample.words, offsets, [False] * len(offsets))
            guesses = [
                (added["tokens"][tokens[word]]["label"], added["tokens"][tokens[word]]["score"])
                if word in tokens
                else ("", 0.0)
                for word in range(len(sample.words))
            ]
            yield [label for label, _ in guesses], [score for _, score in guesses]

    def _as_iob(self, predicted: Sequence[str]) -> list[str]:
        """Return predicted labels in the scheme IOB2."""
        named = [name or OUTSIDE for name in predicted]
        return list(repair_iob(named)) if self._repairs_predictions else named

    def _entities(self, pairs: Iterable[tuple[WordsSample, list[str]]]) -> Result:
        import numpy as np

        by_type: dict[str, tuple[int, ...]] = {}

        def counted() -> Iterator[list[int]]:
            """Yield, of each sentence, correct, predicted and actual entities, words and hits."""
            for sample, predicted in pairs:
                guessed = self._as_iob(predicted)
                counts = entity_counts(sample.labels, guessed)
                for kind, numbers in counts.items():
                    by_type[kind] = tuple(map(add, by_type.get(kind, (0, 0, 0)), numbers))
                totals = [sum(column) for column in zip((0, 0, 0), *counts.values(), strict=True)]
                hits = sum(map(eq, sample.labels, guessed))
                yield [*totals, len(guessed), hits]

        table = np.fromiter(counted(), np.dtype((np.int64, (5,))))

        def metrics(chosen: "NDArray[np.integer[Any]]") -> dict[str, float]:
            *numbers, words, hits = table[chosen].sum(0).tolist()
            return {"accuracy": hits / words, **entity_scores([numbers])}

        classes = {
            kind: {**entity_scores([numbers]), "entities": numbers[2]}
            for kind, numbers in sorted(by_type.items())
        }
        return self._result(metrics, len(table), int(table[:, 3].sum()), classes)

    def _labels(self, pairs: Iterable[tuple[WordsSample, list[str]]]) -> Result:
        import numpy as np

        labels = self.checkpoint.config.labels
        actual, predicted, words = _label_numbers(pairs, labels)

        def counts_of(chosen: "NDArray[np.integer[Any]]") -> ClassCounts:
            times = np.repeat(np.bincount(chosen, minlength=len(words)), words)
            # the last class are words without prediction
            counts = ClassCounts.of(actual, predicted, len(labels) + 1, times)
            return counts.first(len(labels))

        def metrics(chosen: "NDArray[np.integer[Any]]") -> dict[str, float]:
            counts = counts_of(chosen)
            accuracy = counts.hits.sum() / words[chosen].sum()
            return {"accuracy": float(accuracy), "f1_macro": float(f1_macro(counts))}

        total = counts_of(np.arange(len(words)))
        present = {label for label, count in zip(labels, total.actual, strict=True) if count}
        self.warn(warn_of_absent_labels(labels, present))
        scores = class_scores(total)
        classes = {
            label: {
                **{name: float(values[number]) for name, values in scores.items()},
                "words": int(total.actual[number]),
            }
            for number, label in enumerate(labels)
        }
        return self._result(metrics, len(words), int(words.sum()), classes)

    def _result(self, metrics: Any, sentences: int, words: int, classes: Any) -> Result:
        import numpy as np

        return Result(
            {**metrics(np.arange(sentences)), "sentences": sentences, "words": words},
            {"intervals": bootstrap_samples(metrics, sentences, self.seed), "classes": classes},
        )


def _in_iob(name: str) -> str:
    """Return the label of IOB2 at the same position of a span, without what precedes it."""
    prefix, entity_type = split_tag(name)
    if prefix in ("", OUTSIDE) or name in PREFIXES:
        return name
    return f"{'B' if prefix in (*BEGIN, *SINGLE) else 'I'}-{entity_type}"


def _label_numbers(
    pairs: Iterable[tuple[WordsSample, list[str]]], labels: Sequence[str]
) -> "tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]":
    """Return the number of each word's label and prediction, and the words of each sentence."""
    # Words without prediction have the number of labels as their prediction.
    import numpy as np

    numbers = {name: number for number, name in enumerate((*labels, ""))}
    actual = array("i")
    predicted = array("i")
    words = array("q")
    for sample, guesses in pairs:
        words.append(len(guesses))
        actual.extend(map(numbers.__getitem__, sample.labels))
        predicted.extend(map(numbers.__getitem__, guesses))
    return (
        np.frombuffer(actual, np.int32),
        np.frombuffer(predicted, np.int32),
        np.frombuffer(words, np.int64),
    )
