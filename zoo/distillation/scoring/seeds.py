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
    values = []
    for score in scores:
        student = score.student
        optional = {"agreement": student.agreement, "kl": student.kl, "retention": score.retention}
        present = {name: value for name, value in optional.items() if value is not None}
        latencies = {f"latency_{speed.backend}": speed.latency for speed in student.speed}
        values.append({**student.metrics, **present, **latencies})
    names = dict.fromkeys(name for numbers in values for name in numbers)
    spreads = {
        name: median_and_range([numbers[name] for numbers in values if name in numbers])
        for name in names
    }
    if spreads:
        content = {**read_json_object(path / SUMMARY), "scores": spreads}
        with writing(path / SUMMARY, remains=f"the runs in {path} remain"):
            atomic_write(path / SUMMARY, encode_json(content))
    return spreads
