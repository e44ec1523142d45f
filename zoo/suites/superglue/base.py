"""What the tasks of SuperGLUE share: their files, labels, and the form of text-to-text models."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from zoo.data.readers.problems import RowError
from zoo.data.readers.tables import Row, read_rows
from zoo.overrides import override
from zoo.suites.answers import Answer, AnsweredTask, Item, json_lines, label_metrics
from zoo.suites.folders import require_files

TRAIN_FILE = "train.jsonl"
DEV_FILE = "val.jsonl"
TEST_FILE = "test.jsonl"
BOOLEANS = ("False", "True")
RowType = TypeVar("RowType")


@dataclass(frozen=True, kw_only=True)
class SuperGlueTask(AnsweredTask):
    """A task of SuperGLUE.

    Attributes:
        metric_names: metrics of ``label_metrics``.
        dev_file: path of the file with labels in the directory of the suite; by default
            ``val.jsonl`` in the directory of the title.
    """

    metric_names: tuple[str, ...] = ("accuracy",)
    dev_file: str = ""

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        return require_files([data / (self.dev_file or f"{self.title}/{DEV_FILE}")])

    @override
    def find_train_file(self, data: Path) -> Path:
        (path,) = require_files([data / self.title / TRAIN_FILE])
        return path

    @override
    def read(self, path: Path, *, text_to_text: bool) -> Iterator[Item]:
        make_items = self.text_to_text_items if text_to_text else self.classifier_items
        for row in read_rows(path, ["idx"], others=True):
            yield from make_items(row)

    @abstractmethod
    def classifier_items(self, row: Row) -> Iterable[Item]:
        """Yield what a classifier reads of a row."""

    @abstractmethod
    def text_to_text_items(self, row: Row) -> Iterable[Item]:
        """Yield what a text-to-text model reads of a row.

        The forms are those of the code released with Raffel et al. 2020, arXiv:1910.10683.
        """

    @override
    def metrics(self, items: Sequence[Item], answers: Sequence[Answer]) -> dict[str, float]:
        return label_metrics(self.metric_names, items, answers, self.labels)

    @override
    def submission(self, items: Sequence[Item], answers: Sequence[Answer]) -> str:
        lines = []
        for item, answer in zip(items, answers, strict=True):
            lines.append({"idx": item.idx, "label": self.submitted_label(answer)})
        return json_lines(lines)

    def submitted_label(self, answer: Answer) -> Any:
        """Return the label as the leaderboard takes it."""
        return self.choose_label(answer)

    def targets(self, row: Row) -> tuple[str, ...]:
        """Return the label of a row; nothing if it has none, as in test files."""
        value = row.values.get("label")
        if value is None:
            return ()
        label = str(value)
        if label not in self.labels:
            names = " or ".join(self.labels)
            raise RowError(f"{row.location}: the label is {value!r:.200}, not {names}")
        return (label,)


def convert_row(row: Row, row_type: type[RowType]) -> RowType:
    """Return the values of a row as a struct.

    Raises:
        RowError: a value is missing or of another type.
    """
    try:
        return msgspec.convert(row.values, row_type)
    except msgspec.ValidationError as error:
        raise RowError(f"{row.location}: {error}", "use the files as published") from error


def joined_texts(name: str, texts: Mapping[str, str]) -> str:
    """Return the source of a text-to-text model: the name of the task, and named texts.

    This is ``glue`` of data/preprocessors.py in the code released with Raffel et al. 2020.
    """
    parts = [name]
    for key, text in texts.items():
        parts += (f"{key}:", text)
    return " ".join(parts)
