"""Evaluation of token classifiers on labelled words: accuracy, and scores of entities or labels."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Columns
from zoo.data.readers.words import (
    OUTSIDE,
    WordsSample,
    first_tokens,
    is_iob,
    read_words,
    repair_samples,
    word_starts,
)
from zoo.errors import UsageError
from zoo.evaluate.base import Evaluation, Result
from zoo.evaluate.entities import entity_counts, entity_scores
from zoo.evaluate.metrics import bootstrap_samples, class_scores, confusion_matrix
from zoo.evaluate.one_sided import warn_of_absent_labels
from zoo.inference.processing.records import TextExample
from zoo.inference.tasks.base import EncodedExample
from zoo.inference.tasks.checks import require_head
from zoo.inference.tasks.classify import Classify

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint


STARTS = "starts"  # key of a record: positions of its words


class ClassifyWords(Classify):
    """The task with the words of the data, which may have spaces in them."""

    def word_starts(self, item: EncodedExample) -> list[int]:
        """See ``Classify``."""
        starts: list[int] = item.record.extra[STARTS]
        return starts


class TokenClassification(Evaluation):
    """Accuracy of words, and precision, recall and F1 of entities or labels.

    A word has the label that is predicted at its first token. A word that was truncated, or has no
    token, counts as ``O``, or as wrong where labels mark no spans. Spans of the data that begin
    with ``I-`` are repaired, see ``repair_iob``, and counted. Intervals are over sentences.

    Args:
        *args: see ``Evaluation``; ``limit`` is the number of sentences.
        text: column of the words, see ``zoo.data.readers.words``.
        label: column of the labels.
        seed: seed of the intervals.
        seq_len: length that texts are truncated to, or of windows; by default the model's limit.
        doc_stride: number of tokens that windows over a long text share, see ``Classify``.
        **options: see ``Evaluation``.
    """

    name: ClassVar[str] = "token-classification"

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        label: str = "label",
        seed: int = 0,
        seq_len: int | None = None,
        doc_stride: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns, self.seed = Columns(text, label), seed
        self.task = ClassifyWords(
            self.checkpoint, self.session, max_tokens=seq_len, doc_stride=doc_stride
        )

    @classmethod
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        """See ``Evaluation``."""
        require_head(checkpoint, Classify.name)
        if len(checkpoint.head.outputs["logits"].split()) != 3:
            raise UsageError(
                f"{checkpoint.path} has the head {checkpoint.head_name}, which labels whole texts",
                "choose another --task",
            )

    def evaluate(self, files: Sequence[Path]) -> Result:
        """See ``Evaluation``."""
        samples = read_words(files, self.columns)[: self.limit]
        labels = self.checkpoint.config.labels
        actual = repair_samples(samples, files) if is_iob(labels) else samples
        self._require_known(samples, actual)
        pairs = list(zip(actual, self._predictions(samples), strict=True))
        return self._entities(pairs) if is_iob(labels) else self._labels(pairs)

    def _require_known(
        self, samples: Sequence[WordsSample], repaired: Sequence[WordsSample]
    ) -> None:
        """Check that the model has each label, as it is in the data or repaired.

        Raises:
            UsageError: it has not.
        """
        labels = self.checkpoint.config.labels
        for sample, other in zip(samples, repaired, strict=True):
            pairs = zip(sample.labels, other.labels, strict=True)
            for word, (name, alternative) in enumerate(pairs):
                if name not in labels and alternative not in labels:
                    raise UsageError(
                        f"{sample.word_location(word)}: the model has no label {name!r}",
                        f"it has {', '.join(labels[:8])}",
                    )

    def _predictions(self, samples: Sequence[WordsSample]) -> Iterator[list[str]]:
        """Yield the predicted labels of each sentence's words; empty for a word without one."""
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
            yield [
                added["tokens"][tokens[word]]["label"] if word in tokens else ""
                for word in range(len(sample.words))
            ]

    def _entities(self, pairs: Sequence[tuple[WordsSample, list[str]]]) -> Result:
        import numpy as np

        by_type: dict[str, list[tuple[int, ...]]] = {}
        rows = []  # of each sentence: entities that are correct, predicted, actual; words, hits
        for sample, predicted in pairs:
            guessed = [name or OUTSIDE for name in predicted]
            counts = entity_counts(sample.labels, guessed)
            for kind, numbers in counts.items():
                by_type.setdefault(kind, []).append(numbers)
            totals = [sum(column) for column in zip((0, 0, 0), *counts.values(), strict=True)]
            rows.append([*totals, len(guessed), _hits(sample.labels, guessed)])
        table = np.array(rows)

        def metrics(chosen: "NDArray[np.integer[Any]]") -> dict[str, float]:
            *numbers, words, hits = table[chosen].sum(0).tolist()
            return {"accuracy": hits / words, **entity_scores([numbers])}

        classes = {
            kind: {**entity_scores(numbers), "entities": sum(count[2] for count in numbers)}
            for kind, numbers in sorted(by_type.items())
        }
        return self._result(metrics, len(pairs), int(table[:, 3].sum()), classes)

    def _labels(self, pairs: Sequence[tuple[WordsSample, list[str]]]) -> Result:
        import numpy as np

        labels = self.checkpoint.config.labels
        present = {name for sample, _ in pairs for name in sample.labels}
        self.warn(warn_of_absent_labels(labels, present))
        table = np.array(
            [_confusion(sample.labels, predicted, labels) for sample, predicted in pairs]
        )
        words = np.array([len(sample.words) for sample, _ in pairs])

        def metrics(chosen: "NDArray[np.integer[Any]]") -> dict[str, float]:
            confusion = table[chosen].sum(0)
            accuracy = np.trace(confusion) / words[chosen].sum()
            return {
                "accuracy": float(accuracy),
                "f1_macro": float(class_scores(confusion)["f1"][:-1].mean()),
            }

        total = table.sum(0)
        scores = class_scores(total)
        classes = {
            label: {
                **{name: float(values[number]) for name, values in scores.items()},
                "words": int(total[number].sum()),
            }
            for number, label in enumerate(labels)
        }
        return self._result(metrics, len(pairs), int(words.sum()), classes)

    def _result(self, metrics: Any, sentences: int, words: int, classes: Any) -> Result:
        import numpy as np

        return Result(
            {**metrics(np.arange(sentences)), "sentences": sentences, "words": words},
            {"intervals": bootstrap_samples(metrics, sentences, self.seed), "classes": classes},
        )


def _confusion(
    actual: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> "NDArray[np.integer[Any]]":
    """Return the confusion matrix of a sentence; its last class are words without prediction."""
    import numpy as np

    numbers = {name: number for number, name in enumerate((*labels, ""))}
    rows, columns = (np.array([numbers[name] for name in names]) for names in (actual, predicted))
    return confusion_matrix(rows, columns, len(numbers))


def _hits(actual: Sequence[str], predicted: Sequence[str]) -> int:
    return sum(a == p for a, p in zip(actual, predicted, strict=True))
