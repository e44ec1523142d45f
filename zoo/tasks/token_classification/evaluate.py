"""Evaluation of token classifiers on labelled words: accuracy, and scores of entities or labels."""

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import add, eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Columns, describe_labels, warn_of_absent_labels
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
    """Accuracy of words, and precision, recall and F1 of entities or labels.

    A word's label is predicted at its first token. A word that was truncated, or has no token,
    counts as ``O``, or as wrong if labels do not mark spans. Spans in the data that begin with
    ``I-`` are repaired, and labels in BIOES or BILOU, of the data or the model, are compared in
    IOB2; see ``repair_iob``. Intervals are over sentences.
    """

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
        has_spans = marks_spans(self.checkpoint.config.labels)
        iob_labels: frozenset[str] = frozenset()
        if has_spans:
            iob_labels = frozenset(map(_in_iob, self.checkpoint.config.labels))
        require_labels = partial(self._require_labels, iob_labels=iob_labels)

        def read(problems: RowProblems) -> Iterator[WordsSample]:
            return problems.checked(iter_words(files, self.columns, problems), require_labels)

        samples = self.samples(read, lambda s: Reviewed(s.words, s.labels, s.labels))
        repair = IobRepair(files)
        # This reads all samples, and so finds what cannot be used before anything is computed.
        count = 0
        for sample in samples:
            count += 1
            if has_spans:
                repair(sample)
        repair.warn()
        self._repairs_predictions |= repair.has_changes

        def compared_samples() -> Iterable[WordsSample]:
            return map(repair, samples) if has_spans else samples

        guesses = self.observed(compared_samples(), self._predictions(samples, count), self._row)
        predicted_labels = (labels for labels, _ in guesses)
        pairs = zip(compared_samples(), predicted_labels, strict=True)
        return self._entities(pairs) if has_spans else self._labels(pairs)

    def _require_labels(self, sample: WordsSample, *, iob_labels: Collection[str]) -> WordsSample:
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
        has_spans = marks_spans(self.checkpoint.config.labels)
        if has_spans:
            predicted = self._as_iob(predicted)
        counts = compare_words(sample.labels, predicted, has_spans=has_spans)
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
        self, samples: Iterable[WordsSample], count: int
    ) -> Iterator[tuple[list[str], list[float]]]:
        """Yield the predicted labels of the words of some sentences, and their probabilities.

        A word without a prediction has an empty label, and the probability 0.
        """
        results = self.stream(self.task, map(_word_record, samples), count)
        for sample, result in zip(samples, results, strict=True):
            tokens = result["tokens"]
            offsets = [(token["start"], token["end"]) for token in tokens]
            word_tokens = first_tokens(sample.words, offsets, [False] * len(offsets))
            labels = [""] * len(sample.words)
            probabilities = [0.0] * len(sample.words)
            for word, number in word_tokens.items():
                labels[word] = tokens[number]["label"]
                probabilities[word] = tokens[number]["score"]
            yield labels, probabilities

    def _as_iob(self, predicted: Sequence[str]) -> list[str]:
        """Return predicted labels in the scheme IOB2."""
        labels = [name or OUTSIDE for name in predicted]
        return list(repair_iob(labels)) if self._repairs_predictions else labels

    def _entities(self, pairs: Iterable[tuple[WordsSample, list[str]]]) -> Result:
        import numpy as np

        # Type -> numbers of correct, predicted and actual entities.
        type_counts: dict[str, tuple[int, ...]] = {}

        def count_sentences() -> Iterator[list[int]]:
            """Yield the correct, predicted and actual entities, words and hits of sentences."""
            for sample, predicted in pairs:
                predicted_labels = self._as_iob(predicted)
                counts = entity_counts(sample.labels, predicted_labels)
                totals: tuple[int, ...] = (0, 0, 0)
                for name, numbers in counts.items():
                    type_counts[name] = tuple(map(add, type_counts.get(name, (0, 0, 0)), numbers))
                    totals = tuple(map(add, totals, numbers))
                hits = sum(map(eq, sample.labels, predicted_labels))
                yield [*totals, len(predicted_labels), hits]

        table = np.fromiter(count_sentences(), np.dtype((np.int64, (5,))))

        def metrics(sentences: "NDArray[np.integer[Any]]") -> dict[str, float]:
            *numbers, words, hits = table[sentences].sum(0).tolist()
            return {"accuracy": hits / words, **entity_scores([numbers])}

        classes = {}
        for name, numbers in sorted(type_counts.items()):
            classes[name] = {**entity_scores([numbers]), "entities": numbers[2]}
        return self._result(metrics, len(table), int(table[:, 3].sum()), classes)

    def _labels(self, pairs: Iterable[tuple[WordsSample, list[str]]]) -> Result:
        import numpy as np

        labels = self.checkpoint.config.labels
        actual, predicted, words = _label_numbers(pairs, labels)

        def count_classes(sentences: "NDArray[np.integer[Any]]") -> ClassCounts:
            weights = np.repeat(np.bincount(sentences, minlength=len(words)), words)
            # Words without prediction have a class of their own, the last one.
            counts = ClassCounts.of(actual, predicted, len(labels) + 1, weights)
            return counts.first(len(labels))

        def metrics(sentences: "NDArray[np.integer[Any]]") -> dict[str, float]:
            counts = count_classes(sentences)
            accuracy = counts.hits.sum() / words[sentences].sum()
            return {"accuracy": float(accuracy), "f1_macro": float(f1_macro(counts))}

        total = count_classes(np.arange(len(words)))
        scores = class_scores(total)
        present_labels = set()
        classes = {}
        for number, label in enumerate(labels):
            count = int(total.actual[number])
            if count:
                present_labels.add(label)
            label_scores = {name: float(values[number]) for name, values in scores.items()}
            classes[label] = {**label_scores, "words": count}
        self.warn(warn_of_absent_labels(labels, present_labels))
        return self._result(metrics, len(words), int(words.sum()), classes)

    def _result(self, metrics: Any, sentences: int, words: int, classes: Any) -> Result:
        import numpy as np

        return Result(
            {**metrics(np.arange(sentences)), "sentences": sentences, "words": words},
            {"intervals": bootstrap_samples(metrics, sentences, self.seed), "classes": classes},
        )


def _word_record(sample: WordsSample) -> TextExample:
    text = " ".join(sample.words)
    starts = word_starts(sample.words)
    return TextExample(text, extra={STARTS: starts}, location=sample.location)


def _in_iob(name: str) -> str:
    """Return the label of IOB2 at the same position of a span, whatever precedes it."""
    prefix, entity_type = split_tag(name)
    if prefix in ("", OUTSIDE) or name in PREFIXES:
        return name
    iob_prefix = "B" if prefix in (*BEGIN, *SINGLE) else "I"
    return f"{iob_prefix}-{entity_type}"


def _label_numbers(
    pairs: Iterable[tuple[WordsSample, list[str]]], labels: Sequence[str]
) -> "tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]":
    """Return the number of each word's label and prediction, and the words of each sentence.

    Words without prediction have the number of labels as their prediction.
    """
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
