"""What a model gets wrong: ``mistakes.json`` of a run, and the section of reports on it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from zoo.io.json import JsonStruct, read_json_record
from zoo.report.drawings import confusion_drawing, labels_drawing, reliability_drawing

MISTAKES = "mistakes.json"
MOST_LABELS = 20  # labels of a page's drawings
# Columns of predictions that come first, in this order.
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
MAX_CHARACTERS = 400  # characters of a text that are shown


class Mistakes(JsonStruct, kw_only=True):
    """Predictions of a model on labelled data, as far as a report shows them."""

    samples: int  # number of predictions
    # number of wrong predictions; ``None`` where none is right or wrong, such as for numbers
    wrong: int | None
    step: int | None = None  # the step of a run
    # label -> prediction -> number of samples; empty for several labels of a sample
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
    if not os.path.lexists(path):
        return None
    return read_json_record(path, Mistakes)


def mistake_values(mistakes: Mistakes) -> dict[str, Any]:
    """Return the variables of the macro ``mistakes`` of ``parts.html``."""
    charts = []
    if mistakes.confusion:
        charts.append(confusion_drawing(mistakes.confusion, MOST_LABELS))
    if mistakes.labels:
        charts.append(labels_drawing(mistakes.labels, MOST_LABELS))
    if mistakes.reliability:
        charts.append(reliability_drawing(mistakes.reliability))
    columns = _columns(mistakes)
    header = ["where"]
    header += [name.replace("_", " ") for name in columns]
    rows = []
    for row in mistakes.worst:
        rows.append([_cell(row.get(name)) for name in ("location", *columns)])
    return {
        "note": _note(mistakes),
        "charts": [chart.figure() for chart in charts],
        "header": header,
        "rows": rows,
    }


def _columns(mistakes: Mistakes) -> list[str]:
    """Return the columns that the worst predictions have, without their location."""
    names = dict[str, None]()
    for row in mistakes.worst:
        names.update(dict.fromkeys(row))
    columns = [name for name in COLUMNS if name in names]
    for name in names:
        if name not in (*COLUMNS, *HIDDEN, "location"):
            columns.append(name)
    return columns


def _note(mistakes: Mistakes) -> str:
    if mistakes.wrong is None:
        note = f"{mistakes.samples:,} predictions"
    else:
        note = f"{mistakes.wrong:,} of {mistakes.samples:,} predictions are wrong"
    if mistakes.step is not None:
        note += f" at step {mistakes.step:,}, the best evaluation"
    if mistakes.calibration_error is not None:
        note += f"; expected calibration error {mistakes.calibration_error:.4f}"
    return note


def _cell(value: Any) -> str:
    """Return a value as text, shortened at its end."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, list | tuple):
        texts = []
        for item in value:
            if isinstance(item, Mapping):
                texts.append(" ".join(map(_cell, item.values())))
            else:
                texts.append(_cell(item))
        text = ", ".join(texts)
    elif isinstance(value, Mapping):
        text = ", ".join(f"{name}: {_cell(item)}" for name, item in value.items())
    else:
        text = str(value)
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
