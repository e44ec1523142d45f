"""The results of distillation with several seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.finetuning.runs import SUMMARY, median_and_range, select_median_run
from zoo.io.json import encode_json, read_json_object
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing

if TYPE_CHECKING:
    from zoo.training.logging.scores import ScoresRecord


def summarize_seeds(
    path: Path, runs: Sequence[Path], scores: "Sequence[ScoresRecord]"
) -> Mapping[str, Mapping[str, float]]:
    """Copy the model of the median run, and write the median and the range of each score."""
    select_median_run(path, runs)
    values: dict[str, list[float]] = {}
    for score in scores:
        for name, value in _numbers(score).items():
            values.setdefault(name, []).append(value)
    spreads = {name: median_and_range(numbers) for name, numbers in values.items()}
    if spreads:
        content = {**read_json_object(path / SUMMARY), "scores": spreads}
        with writing(path / SUMMARY, remains=f"the runs in {path} remain"):
            atomic_write(path / SUMMARY, encode_json(content))
    return spreads


def _numbers(score: "ScoresRecord") -> dict[str, float]:
    """Return the metrics of a student, those that compare it with its teacher, and its speed."""
    student = score.student
    numbers = dict(student.metrics)
    comparisons = {"agreement": student.agreement, "kl": student.kl, "retention": score.retention}
    for name, value in comparisons.items():
        if value is not None:
            numbers[name] = value
    for speed in student.speed:
        numbers[f"latency_{speed.backend}"] = speed.latency
    return numbers
