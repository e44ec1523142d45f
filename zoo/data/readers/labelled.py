"""Reader of labelled texts: from the rows of tables to samples, their labels, and warnings."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from blake3 import blake3

from zoo.data.readers.documents import iter_files
from zoo.data.readers.parquet import ClassName
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.tables import Row, read_rows
from zoo.errors import UsageError
from zoo.io.numbers import fits_float32, parse_float, parse_int

MAX_LABELS_SHOWN = 8  # Labels that a message names.


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table of labelled texts; see ``read_rows`` for numbers."""

    text: str = "text"
    label: str = "label"
    pair: str | None = None  # column of the second text of a pair; ``None`` for single texts


@dataclass(frozen=True, slots=True)
class Sample:
    """A labelled text."""

    text: str
    pair: str | None  # second text of a pair, or ``None``
    label: Any  # the label as the table has it: text, a number, or a list
    location: str  # file and line, for messages

    @property
    def texts(self) -> list[str]:
        """The text, or both texts of a pair."""
        return [self.text] if self.pair is None else [self.text, self.pair]

    @property
    def hash(self) -> float:
        """A number in [0, 1) that only depends on the texts."""
        return text_hash(self.text, self.pair or "")


class Hashed(Protocol):
    """A sample that can be held out."""

    @property
    def hash(self) -> float:
        """A number in [0, 1) that only depends on the texts."""


AnySample = TypeVar("AnySample", bound=Hashed)


def text_hash(*texts: str) -> float:
    """Return a number in [0, 1) that only depends on some texts."""
    return int.from_bytes(blake3("\0".join(texts).encode()).digest(8)) / 2**64


def read_samples(
    paths: Iterable[str | Path],
    columns: Columns,
    problems: RowProblems | None = None,
    *,
    unlabelled: bool = False,
) -> list[Sample]:
    """Return the samples of tables."""
    return list(iter_samples(paths, columns, problems, unlabelled=unlabelled))


def iter_samples(
    paths: Iterable[str | Path],
    columns: Columns,
    problems: RowProblems | None = None,
    *,
    unlabelled: bool = False,
) -> Iterator[Sample]:
    """Yield the samples of tables; see ``read_samples``."""
    names = [columns.text, columns.label]
    if columns.pair is not None:
        names.append(columns.pair)

    def make_sample(row: Row) -> Sample:
        location = row.location
        text = row.text(columns.text)
        pair = None if columns.pair is None else row.text(columns.pair)
        label = row.values[columns.label]
        if not unlabelled:
            require_label(label, f"{location} has no {columns.label}")
        return Sample(text, pair, label, location)

    def read_file(file: Path, file_problems: RowProblems) -> Iterator[Sample]:
        rows = read_rows(file, names, file_problems)
        return file_problems.checked(rows, make_sample)

    return iter_files(paths, read_file, problems)


def require_label(value: Any, message: str) -> None:
    """Raise an error with a message if there is no label, or a blank one."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise RowError(message)


def label_name(value: Any, location: str) -> str:
    """Return a label as text without white space at its ends: integers without a fraction."""
    require_label(value, f"{location} has no label")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, ClassName):
        return ClassName.with_number(value.strip(), value.number)
    if isinstance(value, str | int):
        return str(value).strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    raise RowError(f"{location}: the label is {value!r:.200}, which names no class")


def label_texts(value: Any, location: str, noun: str) -> tuple[str, ...]:
    """Return the texts of a label that is text, a number, or a list of them.

    Args:
        value: the label; of a list, models are trained on the first.
        location: file and line, for messages.
        noun: what the label is, such as ``target``, for messages.
    """
    values = value if isinstance(value, list) else [value]
    if not values:
        raise RowError(f"{location}: the {noun} is an empty list", f"give a {noun}")
    texts = []
    for item in values:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise RowError(f"{location}: the {noun} is {value!r:.200}, which is not text")
        texts.append(str(item))
    return tuple(texts)


def match_label(name: str, labels: Collection[str]) -> str:
    """Return a label, or the number of a class of Parquet if that is what labels are."""
    if isinstance(name, ClassName) and name not in labels and str(name.number) in labels:
        return str(name.number)
    return name


def split_labels(sample: Sample, separator: str) -> tuple[str, ...]:
    """Return the labels of a sample: the items of a list, or the parts of a text."""
    label = sample.label
    values: list[Any] = []
    if isinstance(label, list):
        values = label
    elif isinstance(label, str) and not isinstance(label, ClassName):
        for part in label.split(separator):
            if part.strip():
                values.append(part.strip())
    elif label is not None:
        values = [label]
    return tuple(label_name(value, sample.location) for value in values)


def label_number(value: Any, location: str) -> float:
    """Return a label as a number that is finite in float32; see ``zoo.io.numbers``."""
    text = value.strip() if isinstance(value, str) else str(value)
    number = None
    if not isinstance(value, bool):
        number = parse_float(text)
    if number is None and isinstance(value, ClassName):
        number = float(value.number)
    if number is None:
        raise RowError(
            f"{location}: the label is {value!r:.200}, which is not a number",
            "write it as a decimal number with a point, such as 1234.5",
        )
    if not fits_float32(number):
        raise RowError(f"{location}: the label is {value!r}, which float32 does not hold")
    return number


def describe_labels(labels: Sequence[str], *unknown_labels: str) -> str:
    """Return the first labels, for messages, and which unknown labels only differ in case."""
    labels_by_folded_name = {label.casefold(): label for label in labels}
    differences = []
    for unknown_label in unknown_labels:
        label = labels_by_folded_name.get(unknown_label.casefold())
        if label is not None:
            differences.append(f"{label!r} and {unknown_label!r} differ in case")
    text = ", ".join(labels[:MAX_LABELS_SHOWN])
    if len(labels) > MAX_LABELS_SHOWN:
        text += ", ..."
    if differences:
        text += f" ({'; '.join(differences[:MAX_LABELS_SHOWN])})"
    return text


def sort_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels in order: by number if all are integers, else as text.

    Names of the classes of Parquet are in the order of their numbers there.
    """
    distinct_names = set(names)
    classes = {name: name.number for name in distinct_names if isinstance(name, ClassName)}
    if len(classes) == len(distinct_names) == len(set(classes.values())):
        return tuple(map(str, sorted(classes, key=lambda name: classes[name])))
    numbers = {str(name): parse_int(name) for name in distinct_names}
    if None in numbers.values():
        return tuple(sorted(numbers))
    return tuple(sorted(numbers, key=lambda name: (numbers[name], name)))


def hold_out(
    samples: Sequence[AnySample], fraction: float, hint: str = ""
) -> tuple[list[AnySample], list[AnySample]]:
    """Split samples into training and evaluation, by a hash of their texts.

    Equal texts are on one side, and samples that are added later do not move others. At least one
    sample is held out.
    """
    hashes = [sample.hash for sample in samples]
    lowest_hash = min(hashes)
    train_samples: list[AnySample] = []
    eval_samples: list[AnySample] = []
    for sample, hash_value in zip(samples, hashes, strict=True):
        if hash_value < fraction or hash_value == lowest_hash:
            eval_samples.append(sample)
        else:
            train_samples.append(sample)
    if not train_samples:
        raise UsageError(
            f"the {len(samples)} rows cannot be split into training and evaluation",
            f"give --eval{hint}",
        )
    return train_samples, eval_samples


def warn_of_absent_labels(
    labels: Sequence[str], present: Collection[str], *, several: bool = False
) -> list[str]:
    """Return warnings of labels that no sample to evaluate has; several may belong to a sample."""
    absent_labels = [repr(name) for name in labels if name not in present]
    if not absent_labels:
        return []
    if len(present) == 1 and not several:
        (label,) = present
        return [
            f"all samples to evaluate have the label {label!r}: a model that always predicts it "
            "has an accuracy of 1, and correlations are 0"
        ]
    names = ", ".join(absent_labels[:MAX_LABELS_SHOWN])
    if len(absent_labels) > MAX_LABELS_SHOWN:
        names += ", ..."
    effect = "counts as 0 where it is predicted, and not otherwise,"
    if several:
        effect = "counts as 0"
    return [f"no sample to evaluate has the label {names}, whose F1 {effect} in f1_macro"]


def warn_of_equal_numbers(values: Iterable[float], *, training: bool = False) -> list[str]:
    """Return warnings of numbers that are all equal."""
    distinct_values = set(values)
    if len(distinct_values) != 1:
        return []
    (value,) = distinct_values
    if training:
        return [f"all samples to train on have the label {value:g}: no difference can be learned"]
    return [f"all samples to evaluate have the label {value:g}: correlations are 0"]
