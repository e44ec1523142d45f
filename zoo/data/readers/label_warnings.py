"""Warnings of labelled data on which metrics say little: labels without samples, equal numbers."""

from collections.abc import Collection, Iterable, Sequence

MAX_LABELS_SHOWN = 8


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
