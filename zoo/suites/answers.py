"""Tasks whose metrics a suite computes itself, from the answers of a classifier or a generator.

Test files without labels are answered in the same way.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.data.readers.labelled import describe_labels
from zoo.errors import UsageError
from zoo.inference.processing.records import TextExample
from zoo.io.json import dump_json
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing
from zoo.metrics.generated_labels import NO_LABEL, word_metrics
from zoo.overrides import override
from zoo.suites.base import TEXT_TO_TEXT, SuiteModel, SuiteTask, TaskScore, TrainingData
from zoo.suites.folders import require_files
from zoo.tasks import make_task

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

MAX_ANSWER_TOKENS = 64  # Of a generated answer, if the model has no limit of its own.
CLASSIFICATION = "text-classification"
MULTIPLE_CHOICE = "multiple-choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What a model reads at once to give an answer.

    Attributes:
        idx: the item in the published files.
        location: file and line, for messages.
        text: the text, or the source of a text-to-text model.
        pair: the second text of a pair, or the question of choices.
        choices: texts of which one is chosen; empty for classes.
        targets: the correct answers, the names of labels or texts; empty in test files.
        details: what else the task needs for its metrics.
    """

    idx: Any
    location: str
    text: str
    pair: str | None = None
    choices: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    details: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a model.

    Attributes:
        label: name of the label; ``None`` if a generated text is none.
        text: the generated text, without white space at its ends; else the label.
        probabilities: label -> probability, of a classifier.
    """

    label: str | None
    text: str
    probabilities: Mapping[str, float] = field(default_factory=dict)


def answer_items(model: SuiteModel, items: Sequence[Item], labels: Sequence[str]) -> list[Answer]:
    """Return a model's answer to each item.

    Args:
        model: a classifier, a model that chooses, or a text-to-text model.
        items: the items, in the form that the model reads.
        labels: names of the labels, in the order of the released data sets.

    Raises:
        UsageError: the model has different labels.
    """
    if model.is_text_to_text:
        return _generate(model, items, labels)
    records = []
    for item in items:
        extra = {"choices": list(item.choices)} if item.choices else {}
        records.append(TextExample(item.text, item.pair, extra, item.location))
    if any(item.choices for item in items):
        chooser = make_task(MULTIPLE_CHOICE, model.checkpoint, model.session)
        names = [labels[added["label"]] for _, added in chooser.stream(records)]
        return [Answer(name, name) for name in names]
    names_of_model = match_labels(model.checkpoint, labels)
    classifier = make_task(CLASSIFICATION, model.checkpoint, model.session)
    answers = []
    for _, added in classifier.stream(records):
        probabilities = {}
        for name, probability in added["scores"].items():
            probabilities[names_of_model[name]] = probability
        label = names_of_model[added["label"]]
        answers.append(Answer(label, label, probabilities))
    return answers


def _generate(model: SuiteModel, items: Sequence[Item], labels: Sequence[str]) -> list[Answer]:
    settings = model.checkpoint.model.generation
    limit = None
    if "max_new_tokens" not in settings and "max_length" not in settings:
        limit = MAX_ANSWER_TOKENS
    task = make_task(TEXT_TO_TEXT, model.checkpoint, model.session, max_new_tokens=limit)
    records = (TextExample(item.text, location=item.location) for item in items)
    answers = []
    for _, added in task.stream(records):
        text = added["generated"].strip()
        answers.append(Answer(text if text in labels else None, text))
    return answers


def match_labels(checkpoint: "Checkpoint", labels: Sequence[str]) -> dict[str, str]:
    """Return the name of each label of a classifier -> that of a task.

    Names are equal except for case, or the Hub's default names, ``LABEL_0``, or numbers. A model
    that was trained on data without a label lacks it.
    """
    model_labels = checkpoint.config.labels
    folded_names = {label.casefold(): label for label in labels}
    if {label.casefold() for label in model_labels} <= folded_names.keys():
        return {label: folded_names[label.casefold()] for label in model_labels}
    if len(model_labels) == len(labels):
        for template in ("LABEL_{}", "{}"):
            numbered_labels = [template.format(number) for number in range(len(labels))]
            if list(model_labels) == numbered_labels:
                return dict(zip(model_labels, labels, strict=True))
    raise UsageError(
        f"{checkpoint.name} has the labels {describe_labels(model_labels)}, and the task "
        f"{describe_labels(labels)}",
        "evaluate a model of this task",
    )


@dataclass(frozen=True, kw_only=True)
class AnsweredTask(SuiteTask):
    """A task of questions with labels, which classifiers or text-to-text models answer.

    Attributes:
        labels: names of the labels.
        test_file: path of the test file in the directory of the suite; empty for none.
    """

    labels: tuple[str, ...] = ()
    test_file: str = ""

    @abstractmethod
    def read(self, path: Path, *, text_to_text: bool) -> Iterable[Item]:
        """Yield the items of a file, in the form of one sort of models."""

    @abstractmethod
    def metrics(self, items: Sequence[Item], answers: Sequence[Answer]) -> dict[str, float]:
        """Return the metrics, from 0 to 1, in the order of tables."""

    @abstractmethod
    def submission(self, items: Sequence[Item], answers: Sequence[Answer]) -> str:
        """Return the content of the leaderboard's file; see ``choose_label`` for labels."""

    @override
    def evaluate(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        (file,) = files
        items = self._read_items(file, text_to_text=model.is_text_to_text)[: model.limit]
        require_labels(items)
        metrics = self.metrics(items, self._answers(model, items))
        model.record(self._evaluation(model, items), files, {"suite_task": self.title}, metrics)
        return TaskScore.from_metrics(metrics)

    @override
    def find_test_files(self, data: Path) -> Sequence[Path]:
        return require_files([data / self.test_file])

    @override
    def predict(self, model: SuiteModel, files: Sequence[Path]) -> Mapping[str, str]:
        (file,) = files
        items = self._read_items(file, text_to_text=model.is_text_to_text)[: model.limit]
        answers = self._answers(model, items)
        return {self.submission_names[0]: self.submission(items, answers)}

    def interpret(self, item: Item, answer: Answer) -> Answer:
        """Return the answer with the label that it means; by default the answer itself."""
        return answer

    def _answers(self, model: SuiteModel, items: Sequence[Item]) -> list[Answer]:
        answers = answer_items(model, items, self.labels)
        return [self.interpret(*pair) for pair in zip(items, answers, strict=True)]

    def training_items(self, items: Sequence[Item], *, text_to_text: bool) -> Iterable[Item]:
        """Yield the samples that models are trained on; by default all items of a file."""
        return items

    def find_train_file(self, data: Path) -> Path:
        """Return the training file; see ``find_files``."""
        raise NotImplementedError(f"{self.title} is not trained")

    @override
    def prepare_training(
        self, data: Path, folder: Path, *, text_to_text: bool
    ) -> TrainingData | None:
        if self.trained_as:
            return None
        train_file = self.find_train_file(data)
        (eval_file,) = self.find_files(data)
        items = self._read_items(train_file, text_to_text=text_to_text)
        eval_items = self._read_items(eval_file, text_to_text=text_to_text)
        require_labels([*items, *eval_items])
        train_items = list(self.training_items(items, text_to_text=text_to_text))
        if not train_items:
            raise UsageError(
                f"{train_file} has no samples to train on", "use the file as published"
            )
        # The run selects its checkpoint by what it learns, such as the noun phrases of WSC.
        eval_items = list(self.training_items(eval_items, text_to_text=text_to_text)) or eval_items
        tables = []
        for name, table_items in (("train", train_items), ("eval", eval_items)):
            path = folder / f"{name}.jsonl"
            rows = (self._training_row(item) for item in table_items)
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(path, json_lines(rows).encode())
            tables.append((str(path),))
        train, evaluation = tables
        if text_to_text:
            return TrainingData(task=TEXT_TO_TEXT, train=train, eval=evaluation)
        if train_items[0].choices:
            return TrainingData(task=MULTIPLE_CHOICE, train=train, eval=evaluation)
        present_labels = {item.targets[0] for item in train_items}
        columns = {"text": "text", "label": "label"}
        if train_items[0].pair is not None:
            columns["pair"] = "pair"
        return TrainingData(
            task=CLASSIFICATION,
            train=train,
            eval=evaluation,
            columns=columns,
            settings={"data.labels": [name for name in self.labels if name in present_labels]},
        )

    def _training_row(self, item: Item) -> dict[str, Any]:
        """Return an item as a row of a table; of several targets all are correct."""
        if item.choices:
            label = self.labels.index(item.targets[0])
            return {"context": item.text, "choices": list(item.choices), "label": label}
        row: dict[str, Any] = {"text": item.text}
        if item.pair is not None:
            row["pair"] = item.pair
        target = item.targets[0] if len(item.targets) == 1 else list(item.targets)
        return {**row, "label": target}

    def choose_label(self, answer: Answer) -> str:
        """Return the label of an answer; the first label for a text that is none."""
        return answer.label or self.labels[0]

    def _read_items(self, file: Path, *, text_to_text: bool) -> list[Item]:
        items = list(self.read(file, text_to_text=text_to_text))
        if not items:
            raise UsageError(f"{file} has no samples", "give a file with rows")
        return items

    def _evaluation(self, model: SuiteModel, items: Sequence[Item]) -> str:
        """Return the name of the evaluation of ``zoo eval`` for such a model."""
        if model.is_text_to_text:
            return TEXT_TO_TEXT
        return MULTIPLE_CHOICE if items[0].choices else CLASSIFICATION


def require_labels(items: Iterable[Item]) -> None:
    """Check that all items have correct answers; raises ``UsageError``."""
    for item in items:
        if not item.targets:
            raise UsageError(f"{item.location} has no label", "give a file with labels")


def label_metrics(
    names: Sequence[str], items: Sequence[Item], answers: Sequence[Answer], labels: Sequence[str]
) -> dict[str, float]:
    """Return metrics of a classifier by name; an answer that is no label is wrong.

    Args:
        names: names of ``zoo.metrics.classification.classification_metrics``.
        items: the items, whose first target is the correct label.
        answers: the answers.
        labels: names of the labels; of two, ``f1`` is of the second one.
    """
    import numpy as np

    actual = np.array([labels.index(item.targets[0]) for item in items])
    predicted = np.array([label_number(answer, labels) for answer in answers])
    return word_metrics(names, predicted, actual, len(labels))


def label_number(answer: Answer, labels: Sequence[str]) -> int:
    """Return the index of the label of an answer, or ``NO_LABEL``."""
    return NO_LABEL if answer.label is None else labels.index(answer.label)


def json_lines(values: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as JSON lines."""
    return "".join(f"{dump_json(dict(value), ensure_ascii=False)}\n" for value in values)
