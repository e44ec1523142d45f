"""Progress of a run on standard error: a bar on a terminal, lines elsewhere, and evaluations."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zoo.io.progress import LINE_SECONDS, log_above_bars, shows_progress
from zoo.training.logging.report import format_duration

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LOG = logging.getLogger("zoo")

# seconds of training; of what is left
ESTIMATE_AFTER = 5.0
SHORT = 60.0
METRICS = 2  # metrics that a line shows
ROOM = 32  # columns of a terminal that the steps, the bar and the time left take

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
        self._began = clock()
        self._shown = 0.0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._estimated = False

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show a bar, if standard error is a terminal; log lines go above it."""
        self._began = self._clock()
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
        # The record of a step takes a synchronization with the device.
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step)
        if step == self.first + 1 or self._clock() - self._shown >= LINE_SECONDS:
            self._show({"step": step, **record()}, speed())
        self._estimate(step)

    def log(self, record: Values, speed: Values) -> None:
        """Show a record of the log, and the speed of the last steps."""
        step = record["step"]
        if record["split"] == "validation":
            shown = ", ".join(" ".join(pair) for pair in figures(record, self.weights, self.best))
            LOG.info("step %s: validation %s", f"{step:,}", shown)
        elif record["split"] == "train":
            due = self._clock() - self._shown >= LINE_SECONDS or step in (
                self.first + 1,
                self.total,
            )
            if due or self._bar is not None:
                self._show(record, speed)
            self._estimate(step)

    def _show(self, record: Values, speed: Values) -> None:
        step = record["step"]
        values = [" ".join(pair) for pair in figures(record, self.weights, self.best)]
        rates = {"tokens_per_second": "{:,.0f} tokens/s", "mfu": "MFU {:.1%}"}
        rate = [form.format(speed[name]) for name, form in rates.items() if name in speed]
        if self._bar is not None and self._task is not None:
            room = self._bar.console.width - ROOM
            while len(values) > 1 and len("  ".join([*values, *rate])) > room:
                values.pop()
            text = "  ".join([*values, *rate])
            self._bar.update(self._task, completed=step, figures=text)
            return
        self._shown = self._clock()
        left = self._left(step)
        ending = [f"{format_duration(left)} left"] if left and step < self.total else []
        shown = ", ".join([*values, *rate, *ending])
        LOG.info("step %s of %s: %s", f"{step:,}", f"{self.total:,}", shown)

    def _left(self, step: int) -> float | None:
        """Return the seconds that are left, by the steps of this process, with evaluations."""
        done = step - self.first
        return (self._clock() - self._began) / done * (self.total - step) if done > 1 else None

    def _estimate(self, step: int) -> None:
        """Log once how long the run takes, if that is worth knowing."""
        seconds = self._clock() - self._began
        left = self._left(step)
        if self._estimated or left is None or seconds < ESTIMATE_AFTER:
            return
        self._estimated = True
        if left >= SHORT:
            LOG.info("this takes about %s", format_duration(seconds + left))


def figures(record: Values, weights: Mapping[str, float], best: str) -> list[tuple[str, str]]:
    """Return name and text of the losses of a record, and of one or two metrics."""
    # Terms are shown as they are, without the weights that the total has: of a term with weight 50,
    # it would say little.
    terms = {name: value for name, value in record.get("losses", {}).items() if value}
    weighted = any(weights.get(name, 1.0) != 1.0 for name in terms)
    losses = {"loss": record["loss"]}
    if len(terms) > 1:
        losses = terms if weighted else losses | terms
    elif weighted:
        losses = {"loss": next(iter(terms.values()))}
    metrics = record.get("metrics", {})
    chosen = sorted(metrics, key=lambda name: name != best)[:METRICS]
    values = losses | {name: metrics[name] for name in chosen}
    return [(name.replace("_", " "), f"{value:.3f}") for name, value in values.items()]
