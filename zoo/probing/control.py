"""Control tasks: the same probes, with labels that say nothing about language."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zoo.data.readers.labelled import text_hash


class ControlTask:
    """Random labels of types, such as words: each type has one label wherever it occurs.

    A probe can only learn them by heart, so its accuracy on them is its capacity to memorize; what
    the task's accuracy exceeds it by is the selectivity (Hewitt and Liang 2019, arXiv:1909.03368,
    section 2). A type's label is drawn from the distribution of the labels of the training data,
    independently of all other types. It is a function of seed and type, and so the same in the
    training data and elsewhere.

    Args:
        labels: classes of the training examples, (examples,).
        classes: number of classes.
        seed: seed of the labels.
    """

    def __init__(self, labels: NDArray[np.int64], classes: int, seed: int) -> None:
        counts = np.bincount(labels, minlength=classes)
        self._upper_ends = np.cumsum(counts) / len(labels)
        self._seed = seed

    def label(self, control_type: str) -> int:
        """Return the class of a type."""
        fraction = text_hash("control", str(self._seed), control_type)
        return int(np.searchsorted(self._upper_ends, fraction, side="right"))

    def labels(self, control_types: Sequence[str]) -> NDArray[np.int64]:
        """Return the classes of types, (types,)."""
        class_of_type = {each: self.label(each) for each in set(control_types)}
        return np.array([class_of_type[each] for each in control_types], np.int64)
