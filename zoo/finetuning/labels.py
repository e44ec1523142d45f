"""Classes as labels: their order, their indices, and warnings about rare ones."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.data.readers.labelled import (
    describe_labels,
    match_label,
    sort_labels,
    warn_of_absent_labels,
)
from zoo.data.readers.problems import RowError
from zoo.data.readers.text_io import open_last_line
from zoo.errors import UsageError
from zoo.finetuning.heads import HEAD, unnamed_labels
from zoo.training.config.finetune import FineTuneConfig, TableConfig

MAX_LABELS_SHOWN = 3  # Labels that are named in warnings.
# Returns the names of the classes of a sample.
LabelNames = Callable[[Any], tuple[str, ...]]
# Returns file and line of a label of a sample, counted from 0.
LabelLocation = Callable[[Any, int], str]


def sample_location(sample: Any, number: int) -> str:
    """Return file and line of a sample, for samples whose labels share a line."""
    location: str = sample.location
    return location


def check_class_names(
    sample: Any,
    names: Sequence[str],
    table: TableConfig,
    locate: LabelLocation = sample_location,
) -> None:
    """Check that the classes of a sample are among ``data.labels``; raises ``RowError``."""
    if table.labels is None:
        return
    for number, name in enumerate(names):
        if name not in table.labels:
            raise RowError(
                f"{locate(sample, number)}: the label {name!r} is not in "
                f"data.labels, {', '.join(table.labels[:8])}"
            )


def fit_classes(
    settings: FineTuneConfig,
    samples: Sequence[Any],
    label_names: LabelNames,
    pretrained: tuple[str, ...],
    *,
    fewest: int,
) -> tuple[str, ...]:
    """Return the classes of samples, in the order of the model's outputs.

    Args:
        settings: configuration of the run.
        samples: the training data.
        label_names: returns the classes of a sample.
        pretrained: labels of a pretrained head that is kept; they decide the order.
        fewest: number of labels that the data needs.

    Raises:
        UsageError: a label has no sample or no output, or there are too few labels.
    """
    present = {name for sample in samples for name in label_names(sample)}
    requested = settings.data.labels
    if pretrained:
        return match_labels(pretrained, present.union(requested or ()))
    return order_labels(present, requested, fewest)


def class_warnings(
    labels: tuple[str, ...],
    train: Sequence[Any],
    evaluation: Sequence[Any],
    label_names: LabelNames,
    *,
    locate: LabelLocation = sample_location,
    warn_of_absent: bool = True,
    several: bool = False,
) -> list[str]:
    """Return warnings about labels with few or no samples.

    Args:
        labels: labels of the model.
        train: samples to train on.
        evaluation: samples to evaluate.
        label_names: returns the classes of a sample.
        locate: returns file and line of a label.
        warn_of_absent: whether labels that the evaluation lacks are worth a warning.
        several: whether a sample may have several labels.
    """
    counts = Counter(name for sample in train for name in label_names(sample))
    # A label with one sample may be the first part of a longer one, in a truncated file.
    single = list[tuple[str, str]]()
    for sample in train:
        for number, name in enumerate(label_names(sample)):
            if counts[name] == 1:
                single.append((name, locate(sample, number)))
    warnings = list[str]()
    unseen = [name for name in labels if not counts[name]]
    if unseen:
        names = describe_labels(unseen)
        warnings.append(f"no training sample has these labels of the pretrained model: {names}")
    warnings += warn_of_single_samples(single)
    if warn_of_absent:
        frequent = [name for name in labels if counts[name] > 1]
        present = {name for sample in evaluation for name in label_names(sample)}
        warnings += warn_of_absent_labels(frequent, present, several=several)
    return warnings


def match_labels(pretrained: tuple[str, ...], present: Collection[str]) -> tuple[str, ...]:
    """Return the labels of a pretrained head in its order; the data may lack some of them."""
    # If the head's outputs have no names, numbers in the data are their indices.
    numbered = tuple(map(str, range(len(pretrained))))
    is_unnamed = pretrained == unnamed_labels(len(pretrained))
    present = {match_label(name, numbered if is_unnamed else pretrained) for name in present}
    if is_unnamed and not present.difference(numbered):
        return numbered
    missing_labels = sort_labels(present.difference(pretrained))
    if missing_labels:
        raise UsageError(
            f"the pretrained model has a head for {describe_labels(pretrained, *missing_labels)}, "
            f"but not for these labels of the data: {describe_labels(missing_labels)}",
            f"rename them in the data, or leave these samples out; --set init_from.new_modules="
            f"[{HEAD}] starts with a new head",
        )
    return pretrained


def label_order(teacher_labels: Sequence[str], labels: Sequence[str]) -> tuple[int, ...] | None:
    """Return the index of each label in another model's outputs; ``None`` if its labels differ."""
    # If the outputs have no names, numbers are their indices.
    numbered = tuple(map(str, range(len(teacher_labels))))
    is_unnamed = tuple(teacher_labels) == unnamed_labels(len(teacher_labels))
    if is_unnamed and set(labels) == set(numbered):
        teacher_labels = numbered
    if sorted(teacher_labels) != sorted(labels):
        return None
    indices = {name: index for index, name in enumerate(teacher_labels)}
    return tuple(indices[name] for name in labels)


def order_labels(
    present: Collection[str], requested: Sequence[str] | None, fewest: int = 1
) -> tuple[str, ...]:
    """Return the labels in the order of the model's outputs: as requested, or sorted."""
    labels = tuple(requested or ()) or sort_labels(present)
    repeated = [name for name, count in Counter(labels).items() if count > 1]
    if repeated:
        raise UsageError(f"data.labels has {repeated[0]!r} twice", "name each label once")
    without_samples = [name for name in labels if name not in present]
    if without_samples:
        raise UsageError(
            f"no sample of the training data has the label {without_samples[0]!r}", "leave it out"
        )
    missing_labels = sort_labels(set(present).difference(labels))
    if missing_labels:
        raise UsageError(
            f"samples of the training data have the label {missing_labels[0]!r}, which data.labels "
            "lacks",
            "add it there, or leave these samples out",
        )
    if not labels:
        raise UsageError("no sample of the training data has a label", "give data with labels")
    if len(labels) < fewest:
        raise UsageError(
            f"all samples of the training data have the label {labels[0]!r}",
            "give data with two labels or more",
        )
    return labels


def warn_of_single_samples(labels: Sequence[tuple[str, str]]) -> list[str]:
    """Return warnings about labels that have a single training sample.

    Args:
        labels: name and location of each label.
    """
    files = {place.rpartition(":")[0] for _, place in labels}
    last_lines = {f"{file}:{open_last_line(Path(file))}" for file in files if Path(file).is_file()}
    cut_first = sorted(labels, key=lambda label: label[1] not in last_lines)
    warnings = list[str]()
    for name, place in cut_first[:MAX_LABELS_SHOWN]:
        warning = f"the label {name!r} has one training sample, {place}"
        if place in last_lines:
            warning += ", the last line, which has no line feed: is the file complete?"
        warnings.append(warning)
    hidden = len(labels) - MAX_LABELS_SHOWN
    if hidden > 0:
        warnings.append(f"{hidden:,} more labels have one training sample")
    return warnings


def label_index(name: str, indices: Mapping[str, int], location: str) -> int:
    """Return the index of a label; raises ``RowError`` if there is none."""
    name = match_label(name, indices)
    if name not in indices:
        raise RowError(
            f"{location}: the label {name!r} is not in the training data",
            f"it has {describe_labels(list(indices), name)}",
        )
    return indices[name]
