"""SentEval: classification by a logistic regression on frozen embeddings.

Conneau and Kiela 2018, arXiv:1803.05449, and for the probing tasks Conneau et al. 2018,
arXiv:1805.01070. Of SentEval's two classifiers this is scikit-learn's logistic regression; see
``zoo.finetuning.cross_validation``. Texts are ordered before they are divided into folds, as
SentEval orders them to form batches, so that its folds are these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.data.readers.senteval import (
    PROBING_FILES,
    TREC_LABELS,
    LabelledRow,
    read_class_file,
    read_mrpc,
    read_probing,
    read_sst,
    read_trec,
)
from zoo.overrides import override
from zoo.suites.base import Suite, SuiteModel, SuiteTask, TaskScore
from zoo.suites.folders import SENTEVAL_PARENTS, find_folder, require_files
from zoo.suites.frozen import FrozenTask, embed_texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BINARY = 2
PROBING_PARENTS = ("", "probing", "data/probing")
SOURCE = "Conneau and Kiela 2018, arXiv:1803.05449"


class Features(NamedTuple):
    """Embeddings of texts or features of pairs, and their classes."""

    vectors: "NDArray[np.floating[Any]]"  # (rows, width).
    labels: "NDArray[np.int64]"  # (rows,).


@dataclass(frozen=True, kw_only=True)
class FoldedTask(FrozenTask):
    """A task of two files, one of each class, whose accuracy is measured by nested folds."""

    folder: str
    positive: str
    negative: str

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        folder = find_folder(data, (self.folder,), SENTEVAL_PARENTS)
        return require_files([folder / self.positive, folder / self.negative])

    @override
    def measure(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        from zoo.finetuning.cross_validation import nested_accuracy

        positive = read_class_file(files[0], 1)[: model.limit]
        negative = read_class_file(files[1], 0)[: model.limit]
        features = _embed(model, [*positive, *negative])
        return TaskScore.from_metrics({"accuracy": nested_accuracy(*features, BINARY)})


@dataclass(frozen=True, kw_only=True)
class SstTask(FrozenTask):
    """SST with two classes: the penalty is chosen on the development file."""

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        folder = find_folder(data, ("SST/binary",), SENTEVAL_PARENTS)
        names = ("sentiment-train", "sentiment-dev", "sentiment-test")
        return require_files([folder / name for name in names])

    @override
    def measure(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        splits = [_embed(model, read_sst(path)[: model.limit]) for path in files]
        return _validated_score(*splits, classes=BINARY)


@dataclass(frozen=True, kw_only=True)
class TrecTask(FrozenTask):
    """Six types of questions: the penalty is chosen by folds of the training file."""

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        folder = find_folder(data, ("TREC",), SENTEVAL_PARENTS)
        return require_files([folder / "train_5500.label", folder / "TREC_10.label"])

    @override
    def measure(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        train, test = (_embed(model, read_trec(path)[: model.limit]) for path in files)
        predictions = _folded_predictions(train, test, len(TREC_LABELS))
        return TaskScore.from_metrics({"accuracy": float((predictions == test.labels).mean())})


@dataclass(frozen=True, kw_only=True)
class MrpcTask(FrozenTask):
    """Paraphrases: features are |u - v| and u * v. The score is the accuracy."""

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        folder = find_folder(data, ("MRPC",), SENTEVAL_PARENTS)
        return require_files(
            [folder / f"msr_paraphrase_{split}.txt" for split in ("train", "test")]
        )

    @override
    def measure(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        from zoo.metrics.classification import ClassCounts, classification_metrics

        train, test = (_embed(model, read_mrpc(path)[: model.limit]) for path in files)
        predictions = _folded_predictions(train, test, BINARY)
        counts = ClassCounts.of(test.labels, predictions, BINARY)
        values = classification_metrics(counts)
        metrics = {"accuracy": float(values["accuracy"]), "f1": float(values["f1"])}
        return TaskScore(metrics, 100 * metrics["accuracy"])


@dataclass(frozen=True, kw_only=True)
class ProbingTask(FrozenTask):
    """A property of a sentence: the penalty is chosen on the validation split."""

    file: str

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        for parent in PROBING_PARENTS:
            if (data / parent / self.file).is_file():
                return [data / parent / self.file]
        return require_files([data / self.file])

    @override
    def measure(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        task_data = read_probing(files[0])
        splits = []
        for rows in (task_data.train, task_data.validation, task_data.test):
            splits.append(_embed(model, rows[: model.limit]))
        return _validated_score(*splits, classes=len(task_data.labels))


def _embed(model: SuiteModel, rows: Sequence[LabelledRow]) -> Features:
    """Return the features of texts or pairs, ordered by numbers of words and class."""
    import numpy as np

    from zoo.finetuning.cross_validation import pair_features

    rows = sorted(rows, key=_order)
    labels = np.array([row.label for row in rows], np.int64)
    texts = [text for row in rows for text in row.texts]
    vectors = embed_texts(model, texts)
    if len(texts) > len(rows):
        vectors = pair_features(vectors[::2], vectors[1::2])
    return Features(vectors, labels)


def _order(row: LabelledRow) -> tuple[list[int], int]:
    """Return what SentEval sorts by: the number of words of each text, and the class."""
    return [len(text.split()) for text in row.texts], row.label


def _folded_predictions(train: Features, test: Features, classes: int) -> "NDArray[np.int64]":
    from zoo.finetuning.cross_validation import predict, select_by_folds
    from zoo.finetuning.logistic_regression import fit

    selection = select_by_folds(*train, classes)
    return predict(fit(*train, classes, selection.c), test.vectors)


def _validated_score(
    train: Features, validation: Features, test: Features, *, classes: int
) -> TaskScore:
    from zoo.finetuning.cross_validation import predict, select_by_validation
    from zoo.finetuning.logistic_regression import fit

    selection = select_by_validation(train, validation, classes)
    predictions = predict(fit(*train, classes, selection.c), test.vectors)
    return TaskScore.from_metrics({"accuracy": float((predictions == test.labels).mean())})


def _make_folded_tasks() -> list[SuiteTask]:
    files = {
        "MR": ("rt-polarity.pos", "rt-polarity.neg"),
        "CR": ("custrev.pos", "custrev.neg"),
        # Objective sentences have the class 1.
        "SUBJ": ("subj.objective", "subj.subjective"),
        "MPQA": ("mpqa.pos", "mpqa.neg"),
    }
    tasks: list[SuiteTask] = []
    for title, (positive, negative) in files.items():
        task = FoldedTask(
            name=title.lower(), title=title, folder=title, positive=positive, negative=negative
        )
        tasks.append(task)
    return tasks


def _make_probing_tasks() -> list[SuiteTask]:
    tasks: list[SuiteTask] = []
    for title, file in PROBING_FILES.items():
        name = file.removesuffix(".txt").replace("_", "-")
        tasks.append(ProbingTask(name=name, title=title, file=file))
    return tasks


SUITE = Suite(
    name="senteval",
    title="SentEval",
    # The order of SimCSE's table.
    tasks=(
        *_make_folded_tasks(),
        SstTask(name="sst2", title="SST2"),
        TrecTask(name="trec", title="TREC"),
        MrpcTask(name="mrpc", title="MRPC"),
    ),
    source=SOURCE,
)
PROBING_SUITE = Suite(
    name="senteval-probing",
    title="SentEval probing",
    tasks=tuple(_make_probing_tasks()),
    source="Conneau et al. 2018, arXiv:1805.01070",
)
