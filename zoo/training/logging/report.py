"""``report.html``: the report of a run in one self-contained file."""

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from zoo.io.numbers import format_count
from zoo.io.output.atomic import atomic_write
from zoo.io.page_text import shell_line
from zoo.report import html
from zoo.report.mistakes import mistake_values
from zoo.report.svg import Point, Series, line_chart
from zoo.training.logging.jsonl import Record
from zoo.training.logging.run_history import SETTINGS, RunHistory
from zoo.training.logging.scores import Scores, score_chart, score_header, score_rows

REPORT = "report.html"
SPLITS = ("train", "validation")
ROWS = 100


def write_report(run: Path) -> Path:
    """Write ``report.html`` into a run's directory, replacing an earlier one as a whole."""
    history = RunHistory.read(run)
    path = run / REPORT
    command = shell_line(list(map(str, history.manifest.get("command") or ())))
    directory = history.manifest.get("working_directory", "")
    if command and directory:  # it also works in another directory
        command = f"{shell_line(['cd', directory])} && {command}"
    names = (history.config.get(name) for name in ("family", "size", "objective", "task"))
    done = history.steps
    total = history.config.get("max_steps", 0)
    progress = f"{done:,} of {total:,} steps" if total else f"{done:,} steps"
    page = html.render(
        "run.html",
        title=" \N{MIDDLE DOT} ".join(str(name) for name in names if name) or "pretraining",
        progress=f"finished after {done:,} steps" if 0 < total <= done else progress,
        facts=[(name, value, note) for name, value, note in _facts(history) if value],
        loss_charts=list(_loss_charts(history)),
        course_charts=list(_course_charts(history)),
        mistake_values=None if history.mistakes is None else mistake_values(history.mistakes),
        validation=_validation(history),
        scores=_scores(history.scores),
        command=command,
        settings=history.config_text.strip(),
        settings_file=SETTINGS,
        kind=history.manifest.get("kind", "pretrain"),
    )
    atomic_write(path, page.encode())
    return path


def _facts(history: RunHistory) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and note of each key figure."""
    best = history.best
    train = history.train
    speed = history.performance
    if best is not None:
        name = history.selecting_name
        last = history.validation[-1]
        step = f"at step {best['step']:,}"
        if name != "loss":
            value = f"{history.selecting_value(best):.4f}"
            yield name.replace("_", " "), value, f"the best, {step}"
            yield "validation loss", f"{best['loss']:.4f}", step
        else:
            note = f"at step {last['step']:,}; lowest {step}: {best['loss']:.4f}"
            yield "validation loss", f"{last['loss']:.4f}", note
    if train:
        yield "training loss", f"{train[-1]['loss']:.4f}", f"at step {train[-1]['step']:,}"
        size = history.config.get("global_batch_tokens")
        length = history.config.get("seq_len")
        yield (
            "tokens seen",
            format_count(train[-1].get("tokens", 0)),
            f"{size:,} a step, {length:,} a row" if size and length else "",
        )
    yield "parameters", format_count(history.manifest.get("parameters", 0)), ""
    if speed:
        versions = history.manifest.get("environment", {})
        torch = f"torch {versions['torch']}" if "torch" in versions else ""
        parts = [versions.get("device", ""), torch]
        yield "time", format_duration(history.seconds), ", ".join(part for part in parts if part)
        rate = statistics.median(record.get("tokens_per_second", 0) for record in speed)
        mfu = [record["mfu"] for record in speed if "mfu" in record]
        used = f"{statistics.median(mfu):.1%} of the peak (MFU)" if mfu else "median"
        yield "tokens a second", format_count(rate), used
        memory = max(record.get("memory_bytes", 0) for record in speed)
        yield "peak memory", f"{memory / 1e9:.2f} GB", ""
    samples = (history.manifest.get("data") or {}).get("rows", {})
    if samples:
        yield "samples", f"{samples['train']:,}", f"{samples['eval']:,} to evaluate"
    corpus = Path(history.manifest.get("corpus", ""))
    digest = history.manifest.get("corpus_digest", "")
    yield "corpus", corpus.name, f"BLAKE3 {digest[:12]}\N{HORIZONTAL ELLIPSIS}" if digest else ""


def _loss_charts(history: RunHistory) -> Iterator[str]:
    """Yield the charts: the metric that selects the checkpoint, the loss, metrics, terms."""
    terms = history.names("losses")
    metrics = [(name, "mean", "metrics") for name in history.names("metrics")]
    values: list[tuple[str, str, str | None]] = [("loss", "nats", None), *metrics]
    # a single term equals the loss
    values += [(term, "nats", "losses") for term in (terms if len(terms) > 1 else ())]
    values.sort(key=lambda value: value[0] != history.selecting_name)
    marks = list(stage_changes(history))
    for name, unit, group in values:
        splits = zip(SPLITS, (history.train, history.validation), strict=True)
        lines = [Series(split, points(records, name, group)) for split, records in splits]
        yield from _chart(name, unit, lines, marks)


def _course_charts(history: RunHistory) -> Iterator[str]:
    marks = list(stage_changes(history))
    for name, unit in (("learning_rate", "per update"), ("gradient_norm", "L2, before clipping")):
        yield from _chart(name, unit, [Series("", points(history.train, name))], marks, zero=True)
    for name, unit in (("tokens_per_second", "tokens/s"), ("mfu", "of the peak")):
        lines = [Series("", points(history.performance, name))]
        yield from _chart(name, unit, lines, marks, zero=True)


def stage_changes(history: RunHistory) -> Iterator[tuple[int, str]]:
    """Yield the steps at which the training changes, and to what."""
    config = history.config
    parent = history.manifest.get("parent")
    if parent:
        yield parent["step"], f"continues {Path(parent['path']).name}"
    total = config.get("max_steps", 0)
    warmup = config.get("seq_len_warmup") or {}
    options = config.get("objective_args") or {}
    for fraction, text in (
        (warmup.get("fraction"), f"rows of {config.get('seq_len', 0):,} tokens"),
        (options.get("generator_fraction"), "discriminator"),
    ):
        if fraction and total:
            yield min(round(fraction * total), total - 1), text


def _chart(
    name: str,
    unit: str,
    lines: Sequence[Series],
    marks: Sequence[tuple[int, str]],
    *,
    zero: bool = False,
) -> Iterator[str]:
    """Yield the chart of a value; nothing if it was never logged."""
    title = "MFU" if name == "mfu" else name.replace("_", " ")
    if any(line.points for line in lines):
        yield line_chart(title[:1].upper() + title[1:], unit, lines, marks, zero=zero)


def points(records: Sequence[Record], name: str, group: str | None = None) -> list[Point]:
    """Return step and value of each record that has a finite value, optionally within a group."""
    pairs = ((r["step"], (r.get(group, {}) if group else r).get(name)) for r in records)
    return [(step, value) for step, value in pairs if value is not None and math.isfinite(value)]


def _validation(history: RunHistory) -> dict[str, Any] | None:
    """Return the table of evaluations: at most about ``ROWS`` rows; ``None`` without any."""
    records = history.validation
    best = history.best
    if best is None:
        return None
    interval = -(-len(records) // ROWS)
    last = len(records) - 1
    shown = [r for k, r in enumerate(records) if k % interval == 0 or r is best or k == last]
    terms = history.names("losses")
    metrics = history.names("metrics")
    terms = terms if len(terms) > 1 else []
    rows = []
    for record in shown:
        of_terms = record.get("losses", {})
        of_metrics = record.get("metrics", {})
        values = [record["loss"], *map(of_terms.get, terms), *map(of_metrics.get, metrics)]
        rows.append(
            [f"{record['step']:,}", *("" if value is None else f"{value:.4f}" for value in values)]
        )
    return {
        "header": ["step", "loss", *(name.replace("_", " ") for name in (*terms, *metrics))],
        "rows": rows,
        "best": next(k for k, r in enumerate(shown) if r is best),
        "best_name": "the lowest loss" if history.best_name == "lowest" else history.best_name,
        "interval": interval,
        "count": f"{len(records):,}",
    }


def _scores(scores: Scores | None) -> dict[str, Any] | None:
    """Return the section of a distilled model; ``None`` without scores."""
    if scores is None:
        return None
    note = f"{scores.data}, {scores.rows:,} rows; latency of one row of {scores.seq_len} tokens"
    retention = scores.retention
    quality = (
        ""
        if retention is None
        else f"{retention:.1%} of the teacher's quality by {scores.metric}; "
    )
    chart = score_chart(scores)
    return {
        "note": f"{quality}{note}, tokens/s in batches of {scores.batch_size}",
        "header": score_header(scores),
        "rows": score_rows(scores),
        "charts": [] if chart is None else [chart],
    }


def format_duration(seconds: float) -> str:
    """Format a duration: ``2 d 3 h``, ``1 h 5 min``, ``2 min 3 s``, ``4.2 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    for size, name, less, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {name} {int(seconds % size // less)} {smaller}"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
