"""Progress of a run on standard error: a bar on a terminal, and a line per evaluation."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zoo.io.progress import log_above_bars, shows_progress

LOG = logging.getLogger("zoo")

Values = Mapping[str, Any]
Show = Callable[[Values, Values], None]


@contextlib.contextmanager
def training_progress(total: int, done: int = 0) -> Iterator[Show]:
    """Yield a function that shows the progress of a run: a bar on a terminal, nothing elsewhere.

    The function takes a record for ``metrics.jsonl`` (see ``JsonlLogger.write``) and the last one
    for ``performance.jsonl``, which may be empty. An evaluation is logged as a line in either
    case; on a terminal, log lines go above the bar.
    """
    if not shows_progress():
        yield lambda record, speed: log_validation(record)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    bar = Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[figures]}"),
        Remaining(compact=True),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )
    with bar, log_above_bars():
        task = bar.add_task("", total=total, completed=done, figures="")

        def show(record: Values, speed: Values) -> None:
            log_validation(record)
            if record["split"] == "train":
                bar.update(
                    task, completed=record["step"], figures=format_metrics({**record, **speed})
                )

        yield show


def format_metrics(record: Values) -> str:
    """Return the text of the bar: loss, tokens per second and MFU, as far as known."""
    shown = {"loss": "loss {:.3f}", "tokens_per_second": "{:,.0f} tokens/s", "mfu": "MFU {:.1%}"}
    return "  ".join(form.format(record[name]) for name, form in shown.items() if name in record)


def log_validation(record: Values) -> None:
    """Log one line per evaluation; records of training are ignored."""
    if record["split"] != "validation":
        return
    losses = record.get("losses", {})
    terms = losses if len(losses) > 1 else {}  # a single term equals the loss
    values = {"loss": record["loss"], **terms, **record.get("metrics", {})}
    shown = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
    LOG.info("step %s: validation %s", f"{record['step']:,}", shown)
