"""Two systems on the same samples, by the files of ``zoo eval --predictions``."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.data.readers.delimited import DELIMITERS
from zoo.data.readers.problems import RowError
from zoo.data.readers.tables import parse_cell, read_rows, suffix_of
from zoo.errors import UsageError
from zoo.io.json import JsonStruct
from zoo.metrics.classification import ClassCounts, f1_macro, matthews_correlation
from zoo.metrics.paired_tests import difference_interval, holm, mcnemar, permutation_test
from zoo.metrics.ranks import pearson, spearman
from zoo.plugins.metrics import select_metrics

# Columns that say what a sample is.
SAMPLE_COLUMNS = ("text", "pair", "question", "context", "words", "label")
# Columns with a number for each sample, whose mean is a metric.
MEAN_COLUMNS = ("f1", "ndcg_at_10", "loss")
CLASS_METRICS = {"f1_macro": f1_macro, "matthews_correlation": matthews_correlation}
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
Statistics = NDArray[np.float64]


class SystemComparison(JsonStruct):
    """A metric of two systems.

    Attributes:
        name: name of the files that are compared; empty for two files.
        metric: name of the metric.
        first: its value of the first system.
        second: its value of the second system.
        low: lower end of the bootstrap interval of the second value less the first.
        high: upper end of that interval.
        test: ``mcnemar`` or ``permutation``.
        p: p-value of the test.
        adjusted: p-value that is adjusted for the number of tests by Holm's method.
        samples: number of samples.
    """

    name: str
    metric: str
    first: float
    second: float
    low: float
    high: float
    test: str
    p: float
    adjusted: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class _PairedMetric:
    """A metric of two systems: what it needs of each sample, and its value."""

    name: str
    first: Statistics
    second: Statistics
    value: Callable[[Statistics], float]
    has_outcomes: bool = False  # whether each sample is right or wrong

    def compare(self, name: str, seed: int) -> SystemComparison:
        """Test the difference; ``adjusted`` is still ``p``."""
        low, high = difference_interval(self.first, self.second, self.value, seed)
        if self.has_outcomes:
            test = "mcnemar"
            p = mcnemar(self.first[:, 0] > 0, self.second[:, 0] > 0)
        else:
            test = "permutation"
            p = permutation_test(self.first, self.second, self.value, seed)
        return SystemComparison(
            name=name,
            metric=self.name,
            first=self.value(self.first),
            second=self.value(self.second),
            low=low,
            high=high,
            test=test,
            p=p,
            adjusted=p,
            samples=len(self.first),
        )


def compare_predictions(
    first: Path, second: Path, *, metrics: Sequence[str] = (), seed: int = 0
) -> list[SystemComparison]:
    """Compare two files of predictions, or two directories with files of the same names.

    Args:
        first: file or directory of the first system.
        second: file or directory of the second system, of the same samples.
        metrics: further metrics of generated texts, such as ``bleu`` or ``bleu:lowercase=true``.
        seed: seed of the tests.

    Raises:
        UsageError: the files have different samples, or no metric fits.
    """
    comparisons = []
    for name, first_file, second_file in _pairs(first, second):
        for metric in _paired_metrics(first_file, second_file, metrics):
            comparisons.append(metric.compare(name, seed))
    adjusted = holm([comparison.p for comparison in comparisons])
    for comparison, p in zip(comparisons, adjusted, strict=True):
        comparison.adjusted = p
    return comparisons


def _pairs(first: Path, second: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield the name and the files of each task."""
    if first.is_file() and second.is_file():
        yield "", first, second
        return
    if not (first.is_dir() and second.is_dir()):
        raise UsageError(
            f"{first} and {second} are not both files, or both directories",
            "give two files of `zoo eval --predictions`, or two directories of them",
        )
    names = [sorted(p.name for p in f.iterdir() if p.suffix in SUFFIXES) for f in (first, second)]
    if names[0] != names[1]:
        different = sorted(set(names[0]) ^ set(names[1]))
        raise UsageError(
            f"{different[0]} is in one of {first} and {second} only", "give files of the same names"
        )
    if not names[0]:
        raise UsageError(f"{first} has no predictions", f"files end in {', '.join(SUFFIXES)}")
    for name in names[0]:
        yield Path(name).stem, first / name, second / name


def _paired_metrics(first: Path, second: Path, requests: Sequence[str]) -> list[_PairedMetric]:
    """Return the metrics that the columns of two files have."""
    first_columns = _read_columns(first)
    second_columns = _read_columns(second)
    _require_same_samples(first, first_columns, second, second_columns)
    metrics: list[_PairedMetric] = []
    if "correct" in first_columns:
        metrics.append(_outcomes(first_columns, second_columns))
    for name in MEAN_COLUMNS:
        if name in first_columns:
            metrics.append(_column_mean(name, first_columns, second_columns))
    if "probability" in first_columns and _are_texts(first_columns["label"]):
        metrics += _class_metrics(first_columns, second_columns)
    if "error" in first_columns:
        metrics += _number_metrics(first_columns, second_columns)
    for name, metric in select_metrics(requests, "texts", "a comparison").items():
        references = _references(first, first_columns["label"])
        statistics = [
            metric.statistics([str(text) for text in columns["prediction"]], references)
            for columns in (first_columns, second_columns)
        ]
        metrics.append(
            _PairedMetric(name=name, first=statistics[0], second=statistics[1], value=metric.value)
        )
    if not metrics:
        raise UsageError(
            f"{first} has no column that can be compared", "--metric names a metric of texts"
        )
    return metrics


Columns = Mapping[str, list[Any]]


def _references(path: Path, labels: Sequence[Any]) -> list[list[str]]:
    """Return the correct texts of each sample: one, or those of a list, which is JSON in a cell."""
    has_cells = suffix_of(path) in DELIMITERS
    references = []
    for label in labels:
        value = label
        if has_cells and label.startswith("["):
            with contextlib.suppress(RowError):
                value = parse_cell(label, str(path))
        references.append(list(map(str, value)) if isinstance(value, list) else [str(label)])
    return references


def _read_columns(path: Path) -> Columns:
    """Return the columns of a file of predictions."""
    columns: dict[str, list[Any]] = {}
    for row in read_rows(path, None):
        for name, value in row.values.items():
            columns.setdefault(name, []).append(value)
    for name in ("label", "prediction"):
        if name not in columns:
            raise UsageError(
                f"{path} has no column {name!r}", "give files of `zoo eval --predictions`"
            )
    return columns


def _require_same_samples(
    first: Path, first_columns: Columns, second: Path, second_columns: Columns
) -> None:
    counts = len(first_columns["label"]), len(second_columns["label"])
    if counts[0] != counts[1]:
        raise UsageError(
            f"{first} has {counts[0]:,} samples and {second} {counts[1]:,}",
            "evaluate both systems on the same data",
        )
    for name in SAMPLE_COLUMNS:
        if name not in first_columns or name not in second_columns:
            continue
        values = zip(first_columns[name], second_columns[name], strict=True)
        for number, (one, other) in enumerate(values, 1):
            if one != other:
                raise UsageError(
                    f"sample {number} of {first} and {second} has another {name}",
                    "evaluate both systems on the same data",
                )


def _outcomes(first: Columns, second: Columns) -> _PairedMetric:
    return _PairedMetric(
        name="accuracy",
        first=_column([_truth(value) for value in first["correct"]]),
        second=_column([_truth(value) for value in second["correct"]]),
        value=_mean,
        has_outcomes=True,
    )


def _column_mean(name: str, first: Columns, second: Columns) -> _PairedMetric:
    return _PairedMetric(
        name=name, first=_column(first[name]), second=_column(second[name]), value=_mean
    )


def _class_metrics(first: Columns, second: Columns) -> list[_PairedMetric]:
    """Return metrics of classes, whose names are numbered."""
    names = sorted({*first["label"], *first["prediction"], *second["prediction"]})
    numbers = {name: number for number, name in enumerate(names)}
    statistics = []
    for columns in (first, second):
        pairs = zip(columns["label"], columns["prediction"], strict=True)
        rows = [(numbers[label], numbers[prediction]) for label, prediction in pairs]
        statistics.append(np.array(rows, dtype=np.float64))
    metrics = []
    for name, function in CLASS_METRICS.items():
        value = partial(_class_metric, function, len(names))
        metrics.append(
            _PairedMetric(name=name, first=statistics[0], second=statistics[1], value=value)
        )
    return metrics


def _class_metric(
    function: Callable[[ClassCounts], NDArray[np.float64]], classes: int, rows: Statistics
) -> float:
    """Return a metric of rows with the numbers of a label and a prediction."""
    labels, predictions = rows.astype(np.int64).T
    return float(function(ClassCounts.of(labels, predictions, classes)))


def _number_metrics(first: Columns, second: Columns) -> list[_PairedMetric]:
    """Return metrics of numbers."""
    statistics = []
    for columns in (first, second):
        labels = _column(columns["label"])
        statistics.append(np.hstack([labels, _column(columns["prediction"])]))
    functions: dict[str, Callable[[Statistics], float]] = {
        "pearson": lambda rows: pearson(rows[:, 1], rows[:, 0]),
        "spearman": lambda rows: spearman(rows[:, 1], rows[:, 0]),
        "mse": lambda rows: float(np.mean((rows[:, 1] - rows[:, 0]) ** 2)),
    }
    metrics = []
    for name, function in functions.items():
        metrics.append(
            _PairedMetric(name=name, first=statistics[0], second=statistics[1], value=function)
        )
    return metrics


def _mean(rows: Statistics) -> float:
    return float(rows.mean())


def _column(values: Sequence[Any]) -> Statistics:
    """Return numbers, also such that are written as texts, float64, (n, 1)."""
    return np.array(values, dtype=np.float64)[:, None]


def _truth(value: Any) -> bool:
    """Return a truth value, also one that is written as a text."""
    return value is True or value == "true"


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) and not value.startswith("[") for value in values)
