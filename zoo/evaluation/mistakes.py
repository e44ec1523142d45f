"""The worst predictions of an evaluation, and counts of right and wrong ones."""

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from zoo.evaluation.base import Prediction
from zoo.metrics.classification import reliability
from zoo.report.mistakes import Mistakes

MOST = 50  # predictions that are kept


class MistakeCollector:
    """Collects predictions in memory that does not grow with their texts, by how bad they are."""

    def __init__(
        self, mistake: Callable[[Prediction], float | None], labels: Collection[str] = ()
    ) -> None:
        self._mistake = mistake
        self._names = dict.fromkeys(labels)
        self._heap: list[tuple[float, int, Prediction]] = []
        self._samples = self._wrong = 0
        self._judged = False  # whether predictions are right or wrong
        self._cells = Counter[tuple[str, str]]()
        self._of_label = Counter[str]()
        self._wrong_of_label = Counter[str]()
        self._confidences = array("d")
        self._correct = bytearray()

    def add(self, row: Prediction) -> None:
        """Count a prediction, and keep it if it is among the worst."""
        self._samples += 1
        badness = self._mistake(row)
        self._judged |= "correct" in row or badness is None
        if badness is not None:
            self._wrong += 1
            # of equal ones the first comes first
            item = (badness, -self._samples, row)
            (heapq.heappush if len(self._heap) < MOST else heapq.heappushpop)(self._heap, item)
        if self._names:
            self._count(row)

    def _count(self, row: Prediction) -> None:
        label = row["label"]
        prediction = row["prediction"]
        probability = row.get("probability")
        several = isinstance(label, list | tuple)
        names = label if several else [label]
        if not {*names} <= self._names.keys():
            return
        self._of_label.update(names)
        found = prediction if several else [prediction]
        self._wrong_of_label.update(name for name in names if name not in found)
        if several:
            return
        self._cells[label, prediction] += 1
        if isinstance(probability, float):
            self._confidences.append(probability)
            self._correct.append(label == prediction)

    def mistakes(self, step: int | None = None) -> Mistakes:
        """Return what was collected."""
        confusion: dict[str, dict[str, int]] = {}
        if self._cells:
            present = {name for pair in self._cells for name in pair}
            confusion = {label: {} for label in self._names if label in present}
            for (label, prediction), count in sorted(self._cells.items()):
                confusion[label][prediction] = count
        error = None
        curve = list[dict[str, Any]]()
        if self._confidences:
            confidences = np.frombuffer(self._confidences)
            error, curve = reliability(confidences, np.frombuffer(self._correct, np.bool_))
        return Mistakes(
            samples=self._samples,
            wrong=self._wrong if self._judged else None,
            step=step,
            confusion=confusion,
            reliability=curve,
            calibration_error=error,
            labels={
                name: (self._of_label[name], self._wrong_of_label[name])
                for name in self._names
                if self._of_label[name]
            },
            worst=[
                dict(row) for *_, row in sorted(self._heap, key=lambda item: item[:2], reverse=True)
            ],
        )
