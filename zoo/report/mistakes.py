"""What a model gets wrong: ``mistakes.json`` of a run, and the section of reports on it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from zoo.io.json import JsonStruct, read_json_record
from zoo.report.drawings import confusion_drawing, labels_drawing, reliability_drawing

MISTAKES = "mistakes.json"
MOST_LABELS = 20  # of a page's drawings
# columns of a prediction in this order; texts and lists are to the left, numbers to the right
COLUMNS = (
    "text",
    "pair",
    "question",
    "context",
    "label",
    "prediction",
    "least_likely",
    "probability",
)
HIDDEN = ("correct", "tokens", "words", "choices", "scores")
CHARACTERS = 400  # of a text


class Mistakes(JsonStruct, kw_only=True):
    """Predictions of a model on labelled data, as far as a report shows them."""

    samples: int  # number of predictions
    wrong: int | None  # of these; ``None`` if none is right or wrong, such as a number
    step: int | None = None  # of a run
    # label -> prediction -> number of samples, of single labels
    confusion: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    # confidence, accuracy and samples of bins of the probability of the prediction
    reliability: list[dict[str, float]] = msgspec.field(default_factory=list)
    calibration_error: float | None = None
    # label -> samples, those predicted wrong
    labels: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    # the worst predictions: text, label, prediction, ...
    worst: list[dict[str, Any]] = msgspec.field(default_factory=list)


def read_mistakes(run: Path) -> Mistakes | None:
    """Return the mistakes of a run; ``None`` if it recorded none."""
    path = run / MISTAKES
    return read_json_record(path, Mistakes) if os.path.lexists(path) else None


def mistake_values(mistakes: Mistakes) -> dict[str, Any]:
    """Return the variables of the macro ``mistakes`` of ``parts.html``."""
    charts = []
    if mistakes.confusion:
        charts.append(confusion_drawing(mistakes.confusion, MOST_LABELS))
    if mistakes.labels:
        charts.append(labels_drawing(mistakes.labels, MOST_LABELS))
    if mistakes.reliability:
        charts.append(reliability_drawing(mistakes.reliability))
    present = list(dict.fromkeys(name for row in mistakes.worst for name in row))
    columns = [name for name in COLUMNS if name in present]
    columns += [name for name in present if name not in (*COLUMNS, *HIDDEN, "location")]
    error = mistakes.calibration_error
    where = "" if mistakes.step is None else f" at step {mistakes.step:,}, the best evaluation"
    notes = (
        [f"{mistakes.samples:,} predictions{where}"]
        if mistakes.wrong is None
        else [f"{mistakes.wrong:,} of {mistakes.samples:,} predictions are wrong{where}"]
    )
    notes += [] if error is None else [f"expected calibration error {error:.4f}"]
    return {
        "note": "; ".join(notes),
        "charts": [chart.figure() for chart in charts],
        "header": ["where", *(name.replace("_", " ") for name in columns)],
        "rows": [
            [_cell(row.get("location")), *(_cell(row.get(name)) for name in columns)]
            for row in mistakes.worst
        ],
    }


def _cell(value: Any) -> str:
    """Return a value as text, shortened at its end."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, list | tuple):
        text = ", ".join(
            " ".join(map(_cell, part.values())) if isinstance(part, Mapping) else _cell(part)
            for part in value
        )
    elif isinstance(value, Mapping):
        text = ", ".join(f"{name}: {_cell(part)}" for name, part in value.items())
    else:
        text = str(value)
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
