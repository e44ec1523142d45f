"""Acceptability from frozen embeddings, on CoLA (Warstadt et al. 2019, arXiv:1805.12471).

A logistic regression on the embeddings of the training sentences predicts whether a sentence is
acceptable, and Matthews correlation measures it, as in the paper. The paper's classifier has a
hidden layer, whose size and learning rate are drawn at random and chosen on the development file;
this one has a penalty only, which is chosen by folds of the training file, so that development
files are only measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.data.readers.cola import JudgedSentence, read_annotations, read_cola
from zoo.errors import SourceError
from zoo.metrics.classification import ClassCounts, classification_metrics
from zoo.overrides import override
from zoo.suites.base import Suite, SuiteModel, TaskScore
from zoo.suites.frozen import FrozenTask, embed_texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.finetuning.logistic_regression import LinearClassifier

TRAIN = "in_domain_train"
IN_DOMAIN = "in_domain_dev"
OUT_OF_DOMAIN = "out_of_domain_dev"
ANNOTATIONS = (
    "CoLA_grammatical_annotations_major_features",
    "CoLA_grammatical_annotations_minor_features",
)
FOLDERS = ("", "raw", "cola_public/raw")
SUFFIXES = (".tsv", ".txt")
CLASSES = 2


@dataclass(frozen=True, kw_only=True)
class AcceptabilityTask(FrozenTask):
    """A development file."""

    file: str

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        return [_find_file(data, TRAIN), _find_file(data, self.file)]

    @override
    def measure(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        import numpy as np

        train_file, dev_file = files
        sentences = read_cola(dev_file)[: model.limit]
        predictions = _predict(model, train_file, sentences)
        labels = np.array([sentence.label for sentence in sentences])
        counts = ClassCounts.of(labels, predictions, CLASSES)
        values = classification_metrics(counts)
        metrics = {
            "matthews_correlation": float(values["matthews_correlation"]),
            "accuracy": float(values["accuracy"]),
        }
        return TaskScore(metrics, 100 * metrics["matthews_correlation"])


@dataclass(frozen=True, kw_only=True)
class PhenomenaTask(FrozenTask):
    """Matthews correlation of the sentences with each phenomenon, in both development files.

    Warstadt and Bowman 2019, arXiv:1901.03438, whose annotations these are. A sentence has several
    phenomena, or none. The score is the correlation over all annotated sentences.
    """

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        files = [_find_file(data, *ANNOTATIONS)]
        for name in (TRAIN, IN_DOMAIN, OUT_OF_DOMAIN):
            files.append(_find_file(data, name))
        return files

    @override
    def measure(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        import numpy as np

        annotations_file, train_file, *dev_files = files
        annotations = read_annotations(annotations_file)
        sentences = []
        for path in dev_files:
            annotated_sentences = []
            for sentence in read_cola(path):
                if sentence.sentence in annotations.all_sentences:
                    annotated_sentences.append(sentence)
            sentences += annotated_sentences[: model.limit]
        if not sentences:
            raise SourceError(
                f"{annotations_file} has no sentence of {dev_files[0]} or {dev_files[1]}",
                "give the files of one version of CoLA",
            )
        predictions = _predict(model, train_file, sentences)
        labels = np.array([sentence.label for sentence in sentences])
        metrics = {"all": _matthews_correlation(labels, predictions)}
        for name, members in annotations.sentences.items():
            is_member = np.array([sentence.sentence in members for sentence in sentences])
            if is_member.any():
                metrics[name] = _matthews_correlation(labels[is_member], predictions[is_member])
        return TaskScore(metrics, 100 * metrics["all"])


def _find_file(data: Path, *names: str) -> Path:
    """Return the first file of the corpus that exists, in its folder or one above it."""
    for name in names:
        for folder in FOLDERS:
            for suffix in SUFFIXES:
                path = data / folder / f"{name}{suffix}"
                if path.is_file():
                    return path
    raise SourceError(
        f"{data} has no {names[0]}.tsv", "give the folder raw of cola_public, or one above it"
    )


def _predict(
    model: SuiteModel, train_file: Path, sentences: Sequence[JudgedSentence]
) -> "NDArray[np.int64]":
    """Return the predicted classes, (sentences,), of a classifier that all tasks share."""
    from zoo.finetuning.cross_validation import predict

    classifier: LinearClassifier = model.share(
        f"classifier of {train_file}", lambda: _train(model, train_file)
    )
    vectors = embed_texts(model, [sentence.sentence for sentence in sentences])
    return predict(classifier, vectors)


def _train(model: SuiteModel, train_file: Path) -> "LinearClassifier":
    import numpy as np

    from zoo.finetuning.cross_validation import select_by_folds
    from zoo.finetuning.logistic_regression import fit

    sentences = read_cola(train_file)[: model.limit]
    vectors = embed_texts(model, [sentence.sentence for sentence in sentences])
    labels = np.array([sentence.label for sentence in sentences], np.int64)
    selection = select_by_folds(vectors, labels, CLASSES, score=_score)
    return fit(vectors, labels, CLASSES, selection.c)


def _score(predictions: "NDArray[Any]", labels: "NDArray[Any]") -> float:
    return _matthews_correlation(labels, predictions)


def _matthews_correlation(labels: "NDArray[Any]", predictions: "NDArray[Any]") -> float:
    counts = ClassCounts.of(labels, predictions, CLASSES)
    return float(classification_metrics(counts)["matthews_correlation"])


SUITE = Suite(
    name="cola-probing",
    title="frozen CoLA",
    tasks=(
        AcceptabilityTask(name="in-domain", title="CoLA in domain", file=IN_DOMAIN),
        AcceptabilityTask(name="out-of-domain", title="CoLA out of domain", file=OUT_OF_DOMAIN),
        PhenomenaTask(name="phenomena", title="CoLA phenomena", is_averaged=False),
    ),
    source="Warstadt et al. 2019, arXiv:1805.12471",
)
