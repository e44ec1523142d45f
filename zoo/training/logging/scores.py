"""``scores.json``: scores of a distilled model and its teachers, and their table."""

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from zoo.io.json import JsonStruct, read_json_record
from zoo.metrics import LOWER_IS_BETTER
from zoo.report.svg import scatter_chart

SCORES = "scores.json"


class Speed(JsonStruct, kw_only=True):
    """Speed of a model on a backend."""

    backend: str
    device: str  # device it ran on
    dtype: str  # dtype of the computation
    latency: float  # median seconds of a batch of one row
    tokens_per_second: float  # tokens per second in the median batch of ``Scores.batch_size`` rows


class ModelScore(JsonStruct, kw_only=True):
    """Scores of one model."""

    reference: str
    files: dict[str, str]  # BLAKE3 of its files of weights
    # name -> value on the held-out data; none for a model without the head
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    agreement: float | None = None  # share of the predictions that equal the first teacher's
    # mean KL divergence of the model from the first teacher, in nats per prediction
    kl: float | None = None
    parameters: int
    bytes: int  # size of the files of weights
    speed: list[Speed] = msgspec.field(default_factory=list)  # speed by backend


class Scores(JsonStruct, kw_only=True):
    """``scores.json``."""

    zoo: str  # version of the package that measured
    data: str  # what the metrics are measured on
    rows: int
    # metric whose retention is ``retention``; ``None`` where none can be compared
    metric: str | None = None
    # what the student keeps of the first teacher's quality, see ``retained``
    retention: float | None = None
    student: ModelScore
    teachers: list[ModelScore]  # scores of the teachers, in the order of the settings
    seq_len: int  # tokens per row of the measurements of speed
    batch_size: int  # rows of the measurements of throughput
    threads: int  # CPU threads


def read_scores(run: Path) -> Scores | None:
    """Return the scores of a run; ``None`` if it was not scored."""
    path = run / SCORES
    return read_json_record(path, Scores) if path.is_file() else None


def retained(name: str, teacher: float | None, student: float | None) -> float | None:
    """Return the part of a teacher's quality that its student has."""
    # It is student / teacher, or teacher / student where a lower value is better, such as a loss.
    if teacher is None or student is None or min(teacher, student) < 0:
        return None
    over, under = (teacher, student) if name in LOWER_IS_BETTER else (student, teacher)
    return over / under if under > 0 and math.isfinite(over / under) else None


def score_header(scores: Scores) -> tuple[str, ...]:
    """Return the header of ``score_rows``."""
    count = len(scores.teachers)
    numbered = [f"teacher {number + 1}" for number in range(count)]
    return ("", *(numbered if count > 1 else ["teacher"]), "student", "student / teacher")


def score_rows(scores: Scores) -> list[tuple[str, ...]]:
    """Return the rows of a table of scores: name, value of each model, and ratio."""
    models = [*scores.teachers, scores.student]
    first = models[0]
    student = models[-1]
    rows = list[tuple[str, ...]]()
    for name in dict.fromkeys(name for model in models for name in model.metrics):
        values = [model.metrics.get(name) for model in models]
        part = retained(name, first.metrics.get(name), student.metrics.get(name))
        retention = "" if part is None else f"{part:.1%} retained"
        rows.append((name.replace("_", " "), *map(_number, values), retention))
    for label, values in (
        ("agreement", [model.agreement for model in models]),
        ("KL from the teacher", [model.kl for model in models]),
    ):
        if any(value is not None for value in values):
            rows.append((label, *map(_number, values), ""))
    parameters = [model.parameters for model in models]
    rows.append(("parameters", *(f"{n:,}" for n in parameters), _ratio(parameters)))
    sizes = [model.bytes for model in models]
    rows.append(("weights, MB", *(f"{size / 1e6:,.1f}" for size in sizes), _ratio(sizes)))
    for number, speed in enumerate(student.speed):
        column = [model.speed[number] for model in models]
        times = [s.latency for s in column]
        rates = [s.tokens_per_second for s in column]
        milliseconds = [f"{time * 1e3:.2f}" for time in times]
        rows.append((f"latency, ms, {speed.backend}", *milliseconds, _ratio(times)))
        faster = f"{rates[-1] / rates[0]:.2f} x" if rates[0] else ""
        rows.append((f"tokens/s, {speed.backend}", *(f"{r:,.0f}" for r in rates), faster))
    return rows


def score_chart(scores: Scores) -> str | None:
    """Return a figure of quality against latency; ``None`` where either is missing."""
    models = [*scores.teachers, scores.student]
    names = [*(score_header(scores)[1:-1])]
    metric = scores.metric
    if metric is None or not scores.student.speed:
        return None
    points = [
        (name, model.speed[0].latency * 1e3, model.metrics[metric])
        for name, model in zip(names, models, strict=True)
        if metric in model.metrics
    ]
    label = metric.replace("_", " ")
    better = "lower" if metric in LOWER_IS_BETTER else "higher"
    backend = scores.student.speed[0].backend
    title = f"{label[:1].upper()}{label[1:]} against latency"
    return scatter_chart(title, (f"ms, {backend}", f"{label}, {better} is better"), points)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _ratio(values: Sequence[float]) -> str:
    return f"{values[-1] / values[0]:.1%}" if values[0] else ""
