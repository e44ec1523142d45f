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

MAX_WORST = 50  # number of the worst predictions that are kept


class MistakeCollector:
    """Collects predictions in memory that does not grow with their texts, by how bad they are."""

    def __init__(
        self, mistake: Callable[[Prediction], float | None], labels: Collection[str] = ()
    ) -> None:
        self._mistake = mistake
        self._names = dict.fromkeys(labels)
        self._heap: list[tuple[float, int, Prediction]] = []
        self._samples = 0
        self._wrong = 0
        self._is_judged = False  # Whether predictions are right or wrong.
        self._cells = Counter[tuple[str, str]]()
        self._label_counts = Counter[str]()
        self._wrong_label_counts = Counter[str]()
        self._confidences = array("d")
        self._correct = bytearray()

    def add(self, row: Prediction) -> None:
        """Count a prediction, and keep it if it is among the worst."""
        self._samples += 1
        badness = self._mistake(row)
        self._is_judged |= "correct" in row or badness is None
        if badness is not None:
            self._wrong += 1
            # The first of equally bad predictions comes first.
            item = (badness, -self._samples, row)
            if len(self._heap) < MAX_WORST:
                heapq.heappush(self._heap, item)
            else:
                heapq.heappushpop(self._heap, item)
        if self._names:
            self._count(row)

    def _count(self, row: Prediction) -> None:
        label = row["label"]
        prediction = row["prediction"]
        probability = row.get("probability")
        is_multi_label = isinstance(label, list | tuple)
        names = label if is_multi_label else [label]
        if not {*names} <= self._names.keys():
            return
        self._label_counts.update(names)
        predicted_names = prediction if is_multi_label else [prediction]
        self._wrong_label_counts.update(name for name in names if name not in predicted_names)
        if is_multi_label:
            return
        self._cells[label, prediction] += 1
        if isinstance(probability, float):
            self._confidences.append(probability)
            self._correct.append(label == prediction)

    def mistakes(self, step: int | None = None) -> Mistakes:
        """Return what was collected."""
        error = None
        curve = list[dict[str, Any]]()
        if self._confidences:
            confidences = np.frombuffer(self._confidences)
            error, curve = reliability(confidences, np.frombuffer(self._correct, np.bool_))
        labels = {}
        for name in self._names:
            if self._label_counts[name]:
                labels[name] = (self._label_counts[name], self._wrong_label_counts[name])
        worst_items = sorted(self._heap, key=lambda item: item[:2], reverse=True)
        return Mistakes(
            samples=self._samples,
            wrong=self._wrong if self._is_judged else None,
            step=step,
            confusion=self._confusion(),
            reliability=curve,
            calibration_error=error,
            labels=labels,
            worst=[dict(row) for _, _, row in worst_items],
        )

    def _confusion(self) -> dict[str, dict[str, int]]:
        """Return label -> prediction -> number of samples, for the classes that occur."""
        present_names = set[str]()
        for pair in self._cells:
            present_names.update(pair)
        confusion: dict[str, dict[str, int]] = {}
        for name in self._names:
            if name in present_names:
                confusion[name] = {}
        for (label, prediction), count in sorted(self._cells.items()):
            confusion[label][prediction] = count
        return confusion
