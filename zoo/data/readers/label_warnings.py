"""Warnings of labelled data on which metrics say little: labels without samples, equal numbers."""

from collections.abc import Collection, Iterable, Sequence

SHOWN = 8  # labels that are named


def warn_of_absent_labels(
    labels: Sequence[str], present: Collection[str], *, several: bool = False
) -> list[str]:
    """Return warnings of labels that no sample to evaluate has; several may belong to a sample."""
    absent = [repr(name) for name in labels if name not in present]
    if not absent:
        return []
    if len(present) == 1 and not several:
        (only,) = present
        return [
            f"all samples to evaluate have the label {only!r}: a model that always predicts it has "
            "an accuracy of 1, and correlations are 0"
        ]
    names = ", ".join(absent[:SHOWN]) + (", ..." if len(absent) > SHOWN else "")
    counts = "counts as 0" if several else "counts as 0 where it is predicted, and not otherwise,"
    return [f"no sample to evaluate has the label {names}, whose F1 {counts} in f1_macro"]


def warn_of_equal_numbers(values: Iterable[float], *, training: bool = False) -> list[str]:
    """Return warnings of numbers that are all equal."""
    distinct = set(values)
    if len(distinct) != 1:
        return []
    (value,) = distinct
    if training:
        return [f"all samples to train on have the label {value:g}: no difference can be learned"]
    return [f"all samples to evaluate have the label {value:g}: correlations are 0"]
