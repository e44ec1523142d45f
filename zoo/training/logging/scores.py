"""``scores.json``: scores of a distilled model and its teachers, and their table."""

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from zoo.io.json import JsonStruct, read_json_record
from zoo.plugins.metrics import greater_is_better
from zoo.report.svg import scatter_chart

SCORES = "scores.json"


class Speed(JsonStruct, kw_only=True):
    """Speed of a model on a backend."""

    backend: str
    device: str  # Device it ran on.
    dtype: str  # Dtype of the computation.
    latency: float  # Median seconds of a batch of one row.
    tokens_per_second: float  # Tokens per second in the median batch of ``Scores.batch_size`` rows.


class ModelScore(JsonStruct, kw_only=True):
    """ScoresRecord of one model."""

    reference: str
    files: dict[str, str]  # BLAKE3 of its files of weights.
    # Name -> value on the held-out data; none for a model without the head.
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    agreement: float | None = None  # Share of the predictions that equal the first teacher's.
    # Mean KL divergence of the model from the first teacher, in nats per prediction.
    kl: float | None = None
    parameters: int
    bytes: int  # Size of the files of weights.
    speed: list[Speed] = msgspec.field(default_factory=list)  # Speed by backend.


class ScoresRecord(JsonStruct, kw_only=True):
    """``scores.json``."""

    zoo: str  # Version of the package that measured.
    data: str  # What the metrics are measured on.
    rows: int
    # Metric whose retention is ``retention``; ``None`` where none can be compared.
    metric: str | None = None
    # What the student keeps of the first teacher's quality, see ``retained``.
    retention: float | None = None
    student: ModelScore
    teachers: list[ModelScore]  # Scores of the teachers, in the order of the settings.
    seq_len: int  # Tokens per row of the measurements of speed.
    batch_size: int  # Rows of the measurements of throughput.
    threads: int  # CPU threads.


def read_scores(run: Path) -> ScoresRecord | None:
    """Return the scores of a run; ``None`` if it was not scored."""
    path = run / SCORES
    return read_json_record(path, ScoresRecord) if path.is_file() else None


def retained(name: str, teacher: float | None, student: float | None) -> float | None:
    """Return the part of a teacher's quality that its student has.

    It is student / teacher, or teacher / student where a lower value is better, such as a loss. It
    is ``None`` where a value is missing, or the ratio has no meaning.
    """
    if teacher is None or student is None or min(teacher, student) < 0:
        return None
    if not greater_is_better(name):
        if teacher == 0:
            # No part of the quality of a perfect teacher can be told from its error.
            return None
        numerator = teacher
        denominator = student
    else:
        numerator = student
        denominator = teacher
    if not denominator > 0:
        return None
    ratio = numerator / denominator
    return ratio if math.isfinite(ratio) else None


def score_header(scores: ScoresRecord) -> tuple[str, ...]:
    """Return the header of ``score_rows``."""
    teachers = ["teacher"]
    if len(scores.teachers) > 1:
        teachers = [f"teacher {number}" for number, _ in enumerate(scores.teachers, 1)]
    return ("", *teachers, "student", "student / teacher")


def score_rows(scores: ScoresRecord) -> list[tuple[str, ...]]:
    """Return the rows of a table of scores: name, value of each model, and ratio."""
    models = [*scores.teachers, scores.student]
    return [*_metric_rows(models), *_size_rows(models), *_speed_rows(models)]


def _metric_rows(models: Sequence[ModelScore]) -> list[tuple[str, ...]]:
    """Return the rows of metrics; the student is the last of the models."""
    rows: list[tuple[str, ...]] = []
    names: dict[str, None] = {}
    for model in models:
        names.update(dict.fromkeys(model.metrics))
    for name in names:
        values = [model.metrics.get(name) for model in models]
        ratio = retained(name, values[0], values[-1])
        retention = ""
        if ratio is not None:
            retention = f"{ratio:.1%} retained"
        rows.append((name.replace("_", " "), *map(_number, values), retention))
    agreements = [model.agreement for model in models]
    if any(agreement is not None for agreement in agreements):
        rows.append(("agreement", *map(_number, agreements), ""))
    divergences = [model.kl for model in models]
    if any(divergence is not None for divergence in divergences):
        rows.append(("KL from the teacher", *map(_number, divergences), ""))
    return rows


def _size_rows(models: Sequence[ModelScore]) -> list[tuple[str, ...]]:
    """Return the rows of parameters and bytes; the student is the last of the models."""
    counts = [model.parameters for model in models]
    sizes = [model.bytes for model in models]
    return [
        ("parameters", *(f"{count:,}" for count in counts), _ratio(counts)),
        ("weights, MB", *(f"{size / 1e6:,.1f}" for size in sizes), _ratio(sizes)),
    ]


def _speed_rows(models: Sequence[ModelScore]) -> list[tuple[str, ...]]:
    """Return two rows for each backend; the student is the last of the models."""
    rows: list[tuple[str, ...]] = []
    for number, student_speed in enumerate(models[-1].speed):
        backend = student_speed.backend
        latencies = [model.speed[number].latency for model in models]
        milliseconds = [f"{latency * 1e3:.2f}" for latency in latencies]
        rows.append((f"latency, ms, {backend}", *milliseconds, _ratio(latencies)))
        rates = [model.speed[number].tokens_per_second for model in models]
        speedup = ""
        if rates[0]:
            speedup = f"{rates[-1] / rates[0]:.2f} x"
        rows.append((f"tokens/s, {backend}", *(f"{rate:,.0f}" for rate in rates), speedup))
    return rows


def score_chart(scores: ScoresRecord) -> str | None:
    """Return a figure of quality against latency; ``None`` where either is missing."""
    metric = scores.metric
    if metric is None or not scores.student.speed:
        return None
    models = [*scores.teachers, scores.student]
    names = score_header(scores)[1:-1]
    points = []
    for name, model in zip(names, models, strict=True):
        if metric in model.metrics:
            points.append((name, model.speed[0].latency * 1e3, model.metrics[metric]))
    label = metric.replace("_", " ")
    better = "higher" if greater_is_better(metric) else "lower"
    backend = scores.student.speed[0].backend
    title = f"{label[:1].upper()}{label[1:]} against latency"
    return scatter_chart(title, (f"ms, {backend}", f"{label}, {better} is better"), points)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _ratio(values: Sequence[float]) -> str:
    return f"{values[-1] / values[0]:.1%}" if values[0] else ""
