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
    repair_iob,
    word_starts,
)
from zoo.errors import UsageError
from zoo.evaluate.base import Evaluation, Result
from zoo.evaluate.entities import entity_counts, entity_scores
from zoo.evaluate.metrics import bootstrap_samples, class_scores, confusion_matrix
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
    token, counts as ``O``, or as wrong where labels mark no spans. Intervals are over sentences.

    Args:
        *args: see ``Evaluation``; ``limit`` is the number of sentences.
        text: column of the words, see ``zoo.data.readers.words``.
        label: column of the labels.
        seed: seed of the intervals.
        **options: see ``Evaluation``.
    """

    name: ClassVar[str] = "token-classification"

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        label: str = "label",
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns, self.seed = Columns(text, label), seed
        self.task = ClassifyWords(self.checkpoint, self.session)

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
        for sample in samples:
            unknown = [name for name in sample.labels if name not in labels]
            if unknown:
                raise UsageError(
                    f"{sample.location}: the model has no label {unknown[0]!r}",
                    f"it has {', '.join(labels[:8])}",
                )
        pairs = list(zip(samples, self._predictions(samples), strict=True))
        return self._entities(pairs) if is_iob(labels) else self._labels(pairs)

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
            actual = repair_iob(sample.labels)
            guessed = [name or OUTSIDE for name in predicted]
            counts = entity_counts(actual, guessed)
            for kind, numbers in counts.items():
                by_type.setdefault(kind, []).append(numbers)
            totals = [sum(column) for column in zip((0, 0, 0), *counts.values(), strict=True)]
            rows.append([*totals, len(actual), _hits(actual, guessed)])
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
        numbers = {name: number for number, name in enumerate(labels)}
        confusions = []
        for sample, predicted in pairs:
            known = [(a, p) for a, p in zip(sample.labels, predicted, strict=True) if p]
            actual, guessed = (np.array([numbers[p[k]] for p in known], int) for k in (0, 1))
            confusions.append(confusion_matrix(actual, guessed, len(labels)))
        table, words = np.array(confusions), np.array([len(s.words) for s, _ in pairs])

        def metrics(chosen: "NDArray[np.integer[Any]]") -> dict[str, float]:
            confusion = table[chosen].sum(0)
            accuracy = np.trace(confusion) / words[chosen].sum()
            return {
                "accuracy": float(accuracy),
                "f1_macro": float(class_scores(confusion)["f1"].mean()),
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


def _hits(actual: Sequence[str], predicted: Sequence[str]) -> int:
    return sum(a == p for a, p in zip(actual, predicted, strict=True))
