"""GLUE: nine tasks of classification and regression of texts and pairs (Wang et al. 2018)."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zoo.data.readers.glue import GLUE, PREFIX, GlueTask, split_files
from zoo.data.readers.labelled import Sample
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.tables import Row, read_rows
from zoo.inference.processing.records import TextExample
from zoo.metrics.generated_labels import number_of
from zoo.overrides import override
from zoo.suites.answers import Answer, AnsweredTask, Item, answer_items, label_metrics
from zoo.suites.base import (
    SKIP_INVALID,
    TEXT_TO_TEXT,
    Suite,
    SuiteModel,
    SuiteTask,
    TaskScore,
    TrainingData,
)
from zoo.suites.folders import require_files
from zoo.tasks import make_task
from zoo.tasks.seq2seq.text_forms import glue_form

# Metric of classifiers -> its name in results of generated texts, where they differ.
GENERATED_METRICS = {"accuracy": "exact_match"}
# Highest score of STS-B; the lowest is 0.
MAX_SIMILARITY = 5.0
DEV = "dev"
TEST = "test"
# Names of the leaderboard's files that differ from those of the folders.
SUBMISSIONS = {"mnli": ("MNLI-m.tsv", "MNLI-mm.tsv")}
TEST_COLUMNS = {"cola": "sentence"}  # Where the test file has a header and the others do not.
DIAGNOSTICS = "diagnostic"


@dataclass(frozen=True, kw_only=True)
class GlueSuiteTask(SuiteTask):
    """A task of GLUE, on its development files.

    A metric is the mean over the files, and the score the mean of the metrics: MNLI, with two
    files, counts once, and F1 and accuracy, or two correlations, are averaged (section 3.4).
    """

    task: GlueTask

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        return split_files(self.task, data, self.task.dev)

    @override
    def find_test_files(self, data: Path) -> Sequence[Path]:
        names = [name.replace(DEV, TEST) for name in self.task.dev]
        return split_files(self.task, data, names)

    @override
    def prepare_training(
        self, data: Path, folder: Path, *, text_to_text: bool
    ) -> TrainingData | None:
        files = split_files(self.task, data, ["train", *self.task.dev])
        name = f"{PREFIX}{self.name}"
        if text_to_text and not self.task.keys:
            return None
        self._check_labels(files)
        if not text_to_text:
            return TrainingData(task=name, train=(str(data),))
        settings = {SKIP_INVALID: True} if self.task.has_broken_rows else {}
        return TrainingData(task=TEXT_TO_TEXT, train=(f"{name}={data}",), settings=settings)

    def _check_labels(self, files: Sequence[Path]) -> None:
        """Check that no file has a label that is not one of the task; raises ``InvalidRows``.

        Training would take it for another class. Rows without a label, or without their columns,
        are left to the reader of samples.
        """
        labels = self.task.labels
        column = self.task.label

        def check(row: Row) -> None:
            label = row.text(column).strip()
            if label and label not in labels:
                raise RowError(f"{row.location}: the label is {label!r}, not {' or '.join(labels)}")

        if not labels:
            return
        problems = RowProblems()
        for file in files:
            rows = read_rows(file, [column], RowProblems(skip=True))
            for _ in problems.valid(rows, check):
                pass
        problems.require_none()

    @override
    def obstacle(self, model: SuiteModel) -> str:
        if model.is_text_to_text and not self.task.keys:
            return "it has no text-to-text form"
        return ""

    @override
    def evaluate(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        self._check_labels(files)
        names: Mapping[str, str] = {}
        options: dict[str, Any] = {"skip_invalid": True} if self.task.has_broken_rows else {}
        results = []
        for file in files:
            if model.is_text_to_text:
                names = GENERATED_METRICS
                named_file = Path(f"{PREFIX}{self.name}={file}")
                results.append(model.evaluate(TEXT_TO_TEXT, [named_file], **options))
            else:
                columns = {
                    "text": self.task.text,
                    "pair": self.task.pair,
                    "label": self.task.label,
                }
                results.append(model.evaluate(self.task.task, [file], **columns, **options))
        metrics = {}
        for metric in self.task.metrics:
            values = [result.metrics[names.get(metric, metric)] for result in results]
            if len(files) == 1:
                metrics[metric] = values[0]
                continue
            for file, value in zip(files, values, strict=True):
                metrics[f"{metric}_{file.stem.partition('_')[2]}"] = value
        return TaskScore.from_metrics(metrics)

    @override
    def predict(self, model: SuiteModel, files: Sequence[Path]) -> Mapping[str, str]:
        contents = {}
        for name, file in zip(self.submission_names, files, strict=True):
            items = []
            for sample in itertools.islice(self._read_test(file), model.limit):
                items.append(make_item(sample, self.name, text_to_text=model.is_text_to_text))
            if self.task.task == "regression":
                predictions = [f"{number:.3f}" for number in self._scores(model, items)]
            else:
                predictions = self._labels(model, items)
            contents[name] = submission(predictions)
        return contents

    def _read_test(self, file: Path) -> Iterator[Sample]:
        text = TEST_COLUMNS.get(self.name, self.task.text)
        columns = [text]
        if self.task.pair is not None:
            columns.append(self.task.pair)
        for row in read_rows(file, columns):
            pair = None if self.task.pair is None else row.text(self.task.pair)
            yield Sample(row.text(text), pair, None, row.location)

    def _labels(self, model: SuiteModel, items: Sequence[Item]) -> list[str]:
        """Return the label of each item; the first label where a generated text is none."""
        labels = self.task.labels
        words = self.task.words if model.is_text_to_text else dict(zip(labels, labels, strict=True))
        labels_by_word = {word: label for label, word in words.items()}
        answers = answer_items(model, items, tuple(labels_by_word))
        return [labels_by_word.get(answer.label or "", labels[0]) for answer in answers]

    def _scores(self, model: SuiteModel, items: Sequence[Item]) -> Iterator[float]:
        """Yield the score of each pair, which the leaderboard takes from 0 to 5."""
        if model.is_text_to_text:
            numbers = [number_of(answer.text) for answer in answer_items(model, items, ())]
        else:
            scorer = make_task(self.task.task, model.checkpoint, model.session)
            records = [TextExample(i.text, i.pair, location=i.location) for i in items]
            numbers = [added["score"] for _, added in scorer.stream(records)]
        for number in numbers:
            yield min(max(number, 0.0), MAX_SIMILARITY)


def make_item(sample: Sample, name: str, *, text_to_text: bool) -> Item:
    """Return a sample of a task in the form that one sort of models reads."""
    if text_to_text:
        source = glue_form(f"{PREFIX}{name}").source(sample)
        return Item(idx=sample.location, location=sample.location, text=source)
    return Item(idx=sample.location, location=sample.location, text=sample.text, pair=sample.pair)


def submission(predictions: Sequence[str]) -> str:
    """Return a file of the leaderboard: the number of each row, and its label or score."""
    lines = ["index\tprediction"]
    for number, prediction in enumerate(predictions):
        lines.append(f"{number}\t{prediction}")
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, kw_only=True)
class GlueDiagnostics(AnsweredTask):
    """The diagnostic set, which models of MNLI answer; its metric is R3 (section 4).

    ``diagnostic-full.tsv`` of the site has the labels, and ``diagnostic.tsv`` of the archive not.
    """

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        return require_files([data / DIAGNOSTICS / "diagnostic-full.tsv"])

    @override
    def read(self, path: Path, *, text_to_text: bool) -> Iterator[Item]:
        columns = ("Premise", "Hypothesis", "Label")
        is_test = path.name == Path(self.test_file).name
        if is_test:
            columns = ("sentence1", "sentence2", "index")
        for row in read_rows(path, columns):
            sample = Sample(row.text(columns[0]), row.text(columns[1]), None, row.location)
            item = make_item(sample, self.trained_as, text_to_text=text_to_text)
            if not is_test:
                label = row.text(columns[2])
                if label not in self.labels:
                    raise RowError(
                        f"{row.location}: the label is {label!r}, not {' or '.join(self.labels)}"
                    )
                item = replace(item, targets=(label,))
            yield item

    @override
    def metrics(self, items: Sequence[Item], answers: Sequence[Answer]) -> dict[str, float]:
        return label_metrics(["matthews_correlation"], items, answers, self.labels)

    @override
    def submission(self, items: Sequence[Item], answers: Sequence[Answer]) -> str:
        return submission([self.choose_label(answer) for answer in answers])


def _make_tasks() -> tuple[SuiteTask, ...]:
    """Return the tasks, in the order of the paper's table 1, and the diagnostic set."""
    tasks: list[SuiteTask] = []
    for name, task in GLUE.items():
        names = SUBMISSIONS.get(name, (f"{task.folder}.tsv",))
        tasks.append(GlueSuiteTask(name=name, title=task.folder, task=task, submission_names=names))
    diagnostics = GlueDiagnostics(
        name="ax",
        title="AX",
        is_averaged=False,
        trained_as="mnli",
        labels=GLUE["mnli"].labels,
        test_file=f"{DIAGNOSTICS}/diagnostic.tsv",
        submission_names=("AX.tsv",),
    )
    return (*tasks, diagnostics)


SUITE = Suite(
    name="glue",
    title="GLUE",
    tasks=_make_tasks(),
    source="Wang et al. 2018, arXiv:1804.07461",
    is_finetuned=True,
)
