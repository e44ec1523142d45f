"""Progress of a run on standard error: a bar on a terminal, lines elsewhere, and evaluations."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zoo.io.progress import (
    LINE_SECONDS,
    Advance,
    in_notebook,
    log_above_bars,
    progress,
    shows_progress,
)
from zoo.training.logging.report import format_duration

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LOG = logging.getLogger("zoo")

ESTIMATE_AFTER = 5.0  # Seconds of training before the duration is estimated.
SHORTEST_ESTIMATE = 60.0  # Remaining seconds from which on the estimate is logged.
MAX_METRICS_SHOWN = 2  # Metrics of a line.
BAR_COLUMNS = 32  # Columns of a terminal that the steps, the bar and the remaining time take.

Values = Mapping[str, Any]


class TrainingProgress:
    """What a person reads while a run trains; ``weights`` has loss term -> weight in the loss."""

    def __init__(
        self,
        total: int,
        done: int = 0,
        weights: Mapping[str, float] | None = None,
        best: str = "loss",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self.first = done
        self.weights = weights or {}
        self.best = best
        self._clock = clock
        self._start_time = clock()
        self._last_line = 0.0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._advance: Advance | None = None  # of the bar in a notebook
        self._last_step = done
        self._is_estimated = False

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show a bar on a terminal, above which log lines go, and in a notebook."""
        self._start_time = self._clock()
        if in_notebook():
            with progress("training", self.total - self.first, unit="steps") as self._advance:
                yield
            self._advance = None
            return
        if not shows_progress():
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[figures]}", markup=False),
            Remaining(compact=True),
            console=Console(stderr=True),
            transient=True,
            expand=True,
        )
        with self._bar, log_above_bars():
            self._task = self._bar.add_task("", total=self.total, completed=self.first, figures="")
            yield
        self._bar = None

    def step(self, step: int, record: Callable[[], Values], speed: Callable[[], Values]) -> None:
        """Show the end of a step that is not logged, if it is the first, or a line is due."""
        self._count(step)
        # The record of a step takes a synchronization with the device.
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step)
        if step == self.first + 1 or self._clock() - self._last_line >= LINE_SECONDS:
            self._show({"step": step, **record()}, speed())
        self._estimate(step)

    def log(self, record: Values, speed: Values) -> None:
        """Show a record of the log, and the speed of the last steps."""
        step = record["step"]
        self._count(step)
        if record["split"] == "validation":
            figures_text = ", ".join(self._figure_texts(record))
            LOG.info("step %s: validation %s", f"{step:,}", figures_text)
        elif record["split"] == "train":
            is_first_or_last = step in (self.first + 1, self.total)
            is_due = self._clock() - self._last_line >= LINE_SECONDS
            if is_due or is_first_or_last or self._bar is not None:
                self._show(record, speed)
            self._estimate(step)

    def _count(self, step: int) -> None:
        """Move the bar of a notebook to a step."""
        if self._advance is not None:
            self._advance(step - self._last_step)
        self._last_step = step

    def _figure_texts(self, record: Values) -> list[str]:
        """Return the figures of a record, each with its name."""
        return [f"{name} {value}" for name, value in figures(record, self.weights, self.best)]

    def _show(self, record: Values, speed: Values) -> None:
        step = record["step"]
        values = self._figure_texts(record)
        rates = []
        if "tokens_per_second" in speed:
            rates.append(f"{speed['tokens_per_second']:,.0f} tokens/s")
        if "mfu" in speed:
            rates.append(f"MFU {speed['mfu']:.1%}")
        if self._bar is not None and self._task is not None:
            columns = self._bar.console.width - BAR_COLUMNS
            while len(values) > 1 and len("  ".join([*values, *rates])) > columns:
                values.pop()
            text = "  ".join([*values, *rates])
            self._bar.update(self._task, completed=step, figures=text)
            return
        self._last_line = self._clock()
        parts = [*values, *rates]
        remaining = self._remaining_seconds(step)
        if remaining and step < self.total:
            parts.append(f"{format_duration(remaining)} left")
        LOG.info("step %s of %s: %s", f"{step:,}", f"{self.total:,}", ", ".join(parts))

    def _remaining_seconds(self, step: int) -> float | None:
        """Return the seconds that are left, by the steps of this process, with evaluations."""
        steps = step - self.first
        if steps < 2:
            return None
        return (self._clock() - self._start_time) / steps * (self.total - step)

    def _estimate(self, step: int) -> None:
        """Log once how long the run takes, if that is worth knowing."""
        seconds = self._clock() - self._start_time
        remaining = self._remaining_seconds(step)
        if self._is_estimated or remaining is None or seconds < ESTIMATE_AFTER:
            return
        self._is_estimated = True
        if remaining >= SHORTEST_ESTIMATE:
            LOG.info("this takes about %s", format_duration(seconds + remaining))


def figures(record: Values, weights: Mapping[str, float], best: str) -> list[tuple[str, str]]:
    """Return name and text of the losses of a record, and of one or two metrics."""
    # Terms are shown without their weights. The weighted total says little about a term with a
    # weight of 50.
    terms = {name: value for name, value in record.get("losses", {}).items() if value}
    has_weights = any(weights.get(name, 1.0) != 1.0 for name in terms)
    values = {"loss": record["loss"]}
    if len(terms) > 1 and has_weights:
        values = terms
    elif len(terms) > 1:
        values |= terms
    elif has_weights:
        values["loss"] = next(iter(terms.values()))
    for source, source_values in record.get("sources", {}).items():
        if "loss" in source_values:
            values[f"{source} loss"] = source_values["loss"]
    metrics = record.get("metrics", {})
    best_first = sorted(metrics, key=lambda name: name != best)
    for name in best_first[:MAX_METRICS_SHOWN]:
        values[name] = metrics[name]
    return [(name.replace("_", " "), f"{value:.3f}") for name, value in values.items()]
