"""``report.html``: the report of a run in one self-contained file.

It is rendered from ``config.yaml``, ``run.json``, ``metrics.jsonl`` and ``performance.jsonl`` of
the run's directory, as far as they exist.
"""

import math
import shlex
import statistics
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from zoo.io.output.atomic import atomic_write
from zoo.report import html
from zoo.report.svg import Point, Series, line_chart
from zoo.training.logging.jsonl import Record
from zoo.training.logging.run_history import SETTINGS, RunHistory

REPORT = "report.html"
SPLITS = ("train", "validation")
ROWS = 100


def write_report(run: Path) -> Path:
    """Write ``report.html`` into a run's directory, replacing an earlier one as a whole.

    Args:
        run: the run's directory. Sections whose files are missing are left out.

    Raises:
        VerificationError: a line of a log is damaged.
        OSError: the report cannot be written.
    """
    story = RunHistory.read(run)
    path = run / REPORT
    atomic_write(path, html.page(_title(story), _parts(story)).encode())
    return path


def _title(story: RunHistory) -> str:
    names = (story.config.get(name) for name in ("family", "size", "objective"))
    return " \N{MIDDLE DOT} ".join(str(name) for name in names if name) or "pretraining"


def _parts(story: RunHistory) -> Iterator[str]:
    yield f"<h1>{escape(_title(story))}</h1>"
    yield f'<p class="lead">{escape(_progress(story))}</p>'
    yield html.stat_list(_facts(story))
    yield html.section("Loss and metrics", _grid(_learning(story)))
    yield html.section("Course", _grid(_course(story)))
    yield html.section("Validation", *_table(story))
    yield html.section("How to repeat it", *_command(story))
    yield html.section("Settings", html.text(story.config_text))


def _progress(story: RunHistory) -> str:
    done, total = story.steps, story.config.get("max_steps", 0)
    if total and done >= total:
        return f"finished after {done:,} steps"
    return f"{done:,} of {total:,} steps" if total else f"{done:,} steps"


def _facts(story: RunHistory) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and note of each key figure."""
    best, train, speed = story.best, story.train, story.performance
    if best is not None:
        where = f"lowest at step {best['step']:,}: {best['loss']:.4f}"
        yield "validation loss", f"{story.validation[-1]['loss']:.4f}", where
    if train:
        yield "training loss", f"{train[-1]['loss']:.4f}", f"at step {train[-1]['step']:,}"
        yield "tokens seen", format_count(train[-1].get("tokens", 0)), _batch(story.config)
    yield "parameters", format_count(story.manifest.get("parameters", 0)), ""
    if speed:
        yield "time", format_duration(story.seconds), _device(story.manifest)
        rate = statistics.median(record.get("tokens_per_second", 0) for record in speed)
        mfu = [record["mfu"] for record in speed if "mfu" in record]
        used = f"{statistics.median(mfu):.1%} of the peak (MFU)" if mfu else "median"
        yield "tokens a second", format_count(rate), used
        memory = max(record.get("memory_bytes", 0) for record in speed)
        yield "peak memory", f"{memory / 1e9:.2f} GB", ""
    corpus = Path(story.manifest.get("corpus", ""))
    digest = story.manifest.get("corpus_digest", "")
    yield "corpus", corpus.name, f"BLAKE3 {digest[:12]}\N{HORIZONTAL ELLIPSIS}" if digest else ""


def _batch(settings: Record) -> str:
    size, length = settings.get("global_batch_tokens"), settings.get("seq_len")
    return f"{size:,} a step, {length:,} a row" if size and length else ""


def _device(manifest: Record) -> str:
    found = manifest.get("environment", {})
    parts = [found.get("device", ""), f"torch {found['torch']}" if "torch" in found else ""]
    return ", ".join(part for part in parts if part)


def _grid(charts: Iterable[str]) -> str:
    drawn = "\n".join(each for each in charts if each)
    return f'<div class="charts">\n{drawn}\n</div>' if drawn else ""


def _learning(story: RunHistory) -> Iterator[str]:
    yield _both(story, "loss", "nats", None)
    terms = story.names("losses")
    for term in terms if len(terms) > 1 else ():  # a single term equals the loss
        yield _both(story, term, "nats", "losses")
    for name in story.names("metrics"):
        yield _both(story, name, "mean", "metrics")


def _both(story: RunHistory, name: str, unit: str, group: str | None) -> str:
    """Return a chart of one value in both splits."""
    by_split = zip(SPLITS, (story.train, story.validation), strict=True)
    return _chart(
        name, unit, [Series(split, points(rows, name, group)) for split, rows in by_split]
    )


def _course(story: RunHistory) -> Iterator[str]:
    for name, unit in (("learning_rate", "per update"), ("gradient_norm", "L2, before clipping")):
        yield _chart(name, unit, [Series("", points(story.train, name))], zero=True)
    for name, unit in (("tokens_per_second", "tokens/s"), ("mfu", "of the peak")):
        yield _chart(name, unit, [Series("", points(story.performance, name))], zero=True)


def _chart(name: str, unit: str, lines: Sequence[Series], *, zero: bool = False) -> str:
    title = "MFU" if name == "mfu" else name.replace("_", " ")
    title = title[:1].upper() + title[1:]
    return line_chart(title, unit, lines, zero=zero) if any(line.points for line in lines) else ""


def points(records: Sequence[Record], name: str, group: str | None = None) -> list[Point]:
    """Return step and value of each record that has a finite value, optionally within a group."""
    found = ((r["step"], (r.get(group, {}) if group else r).get(name)) for r in records)
    return [(s, value) for s, value in found if value is not None and math.isfinite(value)]


def _table(story: RunHistory) -> Iterator[str]:
    rows, best = story.validation, story.best
    if best is None:
        return
    every = -(-len(rows) // ROWS)
    shown = [r for k, r in enumerate(rows) if k % every == 0 or r is best or k == len(rows) - 1]
    terms, metrics = story.names("losses"), story.names("metrics")
    terms = terms if len(terms) > 1 else []
    header = ["step", "loss", *(name.replace("_", " ") for name in (*terms, *metrics))]
    cells = [
        [f"{r['step']:,}", *(_cell(value) for value in _values(r, terms, metrics))] for r in shown
    ]
    left_out = f"one in {every} of {len(rows):,} validations, the lowest loss and the last; "
    yield html.note(f"{left_out if every > 1 else ''}coloured: the lowest loss")
    yield html.table(header, cells, next(k for k, r in enumerate(shown) if r is best))


def _values(record: Record, terms: Iterable[str], metrics: Iterable[str]) -> Iterator[Any]:
    yield record["loss"]
    yield from (record.get("losses", {}).get(name) for name in terms)
    yield from (record.get("metrics", {}).get(name) for name in metrics)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _command(story: RunHistory) -> Iterator[str]:
    command = story.manifest.get("command")
    if command:
        yield html.text(shlex.join(command))
    if story.config_text:
        yield html.note("Or, with all that was resolved, from the run's directory:")
        yield html.text(f"zoo pretrain {SETTINGS} -o again")


def format_count(value: float) -> str:
    """Format a count with about three digits: ``21.3 M``; 0 is an empty string."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            scaled = value / (1e3 if letter == "k" else size)
            return f"{scaled:.{max(0, 2 - int(math.log10(scaled)))}f} {letter}"
    return f"{value:,.0f}" if value else ""


def format_duration(seconds: float) -> str:
    """Format a duration: ``2 d 3 h``, ``1 h 5 min``, ``2 min 3 s``, ``4.2 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    for size, name, less, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {name} {int(seconds % size // less)} {smaller}"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
