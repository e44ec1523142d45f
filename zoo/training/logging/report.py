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
from zoo.training.logging.scores import ScoresRecord, score_chart, score_header, score_rows

REPORT = "report.html"
MAX_EVALUATIONS_SHOWN = 100


def write_report(run: Path) -> Path:
    """Write ``report.html`` into a run's directory, replacing an earlier one as a whole."""
    history = RunHistory.read(run)
    path = run / REPORT
    mistakes = None
    if history.mistakes is not None:
        mistakes = mistake_values(history.mistakes)
    page = html.render(
        "run.html",
        title=_title(history),
        progress=_progress(history),
        facts=[(name, value, note) for name, value, note in _facts(history) if value],
        loss_charts=list(_loss_charts(history)),
        phases=list(explain_stages(history)),
        course_charts=list(_course_charts(history)),
        mistake_values=mistakes,
        validation=_validation(history),
        scores=_scores(history.scores),
        command=_command(history),
        settings=history.config_text.strip(),
        settings_file=SETTINGS,
        kind=history.manifest.get("kind", "pretrain"),
    )
    atomic_write(path, page.encode())
    return path


def _title(history: RunHistory) -> str:
    """Return what is trained, as far as the settings name it."""
    names = []
    for setting in ("family", "size", "objective", "task"):
        name = history.config.get(setting)
        if name:
            names.append(str(name))
    return " \N{MIDDLE DOT} ".join(names) or "pretraining"


def _progress(history: RunHistory) -> str:
    """Return how many steps the run has done, and how many epochs of labelled data these are."""
    steps = history.steps
    total = history.config.get("max_steps", 0)
    epochs = _epochs(history)
    if 0 < total <= steps:
        return f"finished after {steps:,} steps{epochs}"
    if total:
        return f"{steps:,} of {total:,} steps{epochs}"
    return f"{steps:,} steps{epochs}"


def _epochs(history: RunHistory) -> str:
    """Return the number of epochs in parentheses: the setting, where all its steps are done."""
    rows = ((history.manifest.get("data") or {}).get("rows") or {}).get("train")
    batch_size = history.config.get("batch_size")
    epochs = history.config.get("num_train_epochs")
    if not rows or not batch_size or not epochs:
        return ""
    # The last step may have fewer rows: a quotient would not be the number that was asked for.
    if history.steps == math.ceil(epochs * rows / batch_size):
        number = f"{epochs:g}"
    else:
        number = f"{history.steps * batch_size / rows:.2f}"
    return f" ({number} epoch{'' if number == '1' else 's'})"


def _command(history: RunHistory) -> str:
    """Return the command that started the run; it also works in another directory."""
    arguments = history.manifest.get("command") or ()
    command = shell_line([str(argument) for argument in arguments])
    directory = history.manifest.get("working_directory", "")
    if command and directory:
        command = f"{shell_line(['cd', directory])} && {command}"
    return command


# The name, value and note of a key figure.
Fact = tuple[str, str, str]


def _facts(history: RunHistory) -> Iterator[Fact]:
    """Yield the key figures of a run."""
    yield from _evaluation_facts(history)
    yield from _training_facts(history)
    yield "parameters", format_count(history.manifest.get("parameters", 0)), ""
    yield from _performance_facts(history)
    yield from _data_facts(history)


def _evaluation_facts(history: RunHistory) -> Iterator[Fact]:
    best = history.best
    if best is None:
        return
    name = history.selecting_name
    step = f"at step {best['step']:,}"
    if name != "loss":
        value = f"{history.selecting_value(best):.4f}"
        yield name.replace("_", " "), value, f"the best, {step}"
        yield "validation loss", f"{best['loss']:.4f}", step
    else:
        last = history.validation[-1]
        note = f"at step {last['step']:,}; lowest {step}: {best['loss']:.4f}"
        yield "validation loss", f"{last['loss']:.4f}", note


def _training_facts(history: RunHistory) -> Iterator[Fact]:
    if not history.train:
        return
    last = history.train[-1]
    yield "training loss", f"{last['loss']:.4f}", f"at step {last['step']:,}"
    size = history.config.get("global_batch_tokens")
    length = history.config.get("seq_len")
    note = ""
    if size and length:
        note = f"{size:,} a step, {length:,} a row"
    yield "tokens seen", format_count(last.get("tokens", 0)), note


def _performance_facts(history: RunHistory) -> Iterator[Fact]:
    records = history.performance
    if not records:
        return
    environment = history.manifest.get("environment", {})
    machine = []
    if environment.get("device"):
        machine.append(environment["device"])
    if "torch" in environment:
        machine.append(f"torch {environment['torch']}")
    yield "time", format_duration(history.seconds), ", ".join(machine)
    rate = statistics.median(record.get("tokens_per_second", 0) for record in records)
    mfu = [record["mfu"] for record in records if "mfu" in record]
    note = "median"
    if mfu:
        note = f"{statistics.median(mfu):.1%} of the peak (MFU)"
    yield "tokens a second", format_count(rate), note
    memory = max(record.get("memory_bytes", 0) for record in records)
    yield "peak memory", f"{memory / 1e9:.2f} GB", ""


def _data_facts(history: RunHistory) -> Iterator[Fact]:
    samples = (history.manifest.get("data") or {}).get("rows", {})
    if samples:
        yield "samples", f"{samples['train']:,}", f"{samples['eval']:,} to evaluate"
    sources = history.manifest.get("sources") or {}
    if sources:
        yield "sources", f"{len(sources)}", ", ".join(sources)
        return
    corpus = Path(history.manifest.get("corpus", ""))
    digest = history.manifest.get("corpus_digest", "")
    note = ""
    if digest:
        note = f"BLAKE3 {digest[:12]}\N{HORIZONTAL ELLIPSIS}"
    yield "corpus", corpus.name, note


def _loss_charts(history: RunHistory) -> Iterator[str]:
    """Yield the charts: the metric that selects the checkpoint, the loss, metrics, terms."""
    values: list[tuple[str, str, str | None]] = [("loss", "nats", None)]
    for metric in history.names("metrics"):
        values.append((metric, "mean", "metrics"))
    terms = history.names("losses")
    if len(terms) > 1:  # A single term equals the loss.
        for term in terms:
            values.append((term, "nats", "losses"))
    values.sort(key=lambda value: value[0] != history.selecting_name)
    marks = list(stage_changes(history))
    for name, unit, group in values:
        lines = [
            Series("train", points(history.train, name, group)),
            Series("validation", points(history.validation, name, group)),
        ]
        yield from _chart(name, unit, lines, marks)
    sources = history.names("sources")
    for title, records, value_name, unit in (
        ("validation loss of each source", history.validation, "loss", "nats"),
        ("training loss of each source", history.train, "loss", "nats"),
        ("share of each source", history.train, "share", "of the rows"),
    ):
        lines = []
        for source in sources:
            lines.append(Series(source, source_points(records, source, value_name)))
        yield from _chart(title, unit, lines, marks)


def _course_charts(history: RunHistory) -> Iterator[str]:
    marks = list(stage_changes(history))
    for name, unit in (("learning_rate", "per update"), ("gradient_norm", "L2, before clipping")):
        yield from _chart(name, unit, [Series("", points(history.train, name))], marks, zero=True)
    for name, unit in (("tokens_per_second", "tokens/s"), ("mfu", "of the peak")):
        lines = [Series("", points(history.performance, name))]
        yield from _chart(name, unit, lines, marks, zero=True)


def stage_changes(history: RunHistory) -> Iterator[tuple[int, str]]:
    """Yield the steps at which the training changes, and to what."""
    for step, text, _ in _stages(history):
        yield step, text


def explain_stages(history: RunHistory) -> Iterator[str]:
    """Yield a sentence for each change that the run has reached: what it does to the curves."""
    for step, _, sentence in _stages(history):
        if step <= history.steps:
            yield f"From step {step:,}: {sentence}"


def _stages(history: RunHistory) -> Iterator[tuple[int, str, str]]:
    """Yield step, label and explanation of each change of the training."""
    config = history.config
    parent = history.manifest.get("parent")
    if parent:
        name = Path(parent["path"]).name
        sentence = (
            f"the run continues {name}. Where data or settings differ from it, the loss can jump."
        )
        yield parent["step"], f"continues {name}", sentence
    for stage in (history.manifest.get("mixture") or ())[1:]:
        total_rows = sum(stage["counts"].values())
        shares = []
        for name, count in stage["counts"].items():
            shares.append(f"{name} {count / total_rows:.1%}")
        sentence = (
            f"the sources have other shares: {', '.join(shares)}. The training loss can jump; the "
            "validation loss weights the sources by their last shares."
        )
        yield stage["step"], "other shares of sources", sentence
    total = config.get("max_steps", 0)
    if not total:
        return
    warmup = config.get("seq_len_warmup") or {}
    if warmup.get("fraction"):
        length = config.get("seq_len", 0)
        sentence = (
            f"rows have {length:,} tokens, and had {warmup.get('seq_len', 0):,} before. "
            "Predictions have more context, and positions are new, so the loss can jump."
        )
        yield _stage_step(warmup["fraction"], total), f"rows of {length:,} tokens", sentence
    fraction = (config.get("objective_args") or {}).get("generator_fraction")
    if fraction:
        sentence = (
            "the discriminator is trained, and only the generator was before. The loss is that of "
            "another objective, and cannot be compared with the one before."
        )
        yield _stage_step(fraction, total), "discriminator", sentence


def _stage_step(fraction: float, total: int) -> int:
    return min(round(fraction * total), total - 1)


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
    pairs = []
    for record in records:
        values = record.get(group, {}) if group else record
        value = values.get(name)
        if value is not None and math.isfinite(value):
            pairs.append((record["step"], value))
    return pairs


def source_points(records: Sequence[Record], source: str, name: str) -> list[Point]:
    """Return step and value of a source of each record that has it."""
    pairs = []
    for record in records:
        value = record.get("sources", {}).get(source, {}).get(name)
        if value is not None and math.isfinite(value):
            pairs.append((record["step"], value))
    return pairs


def _validation(history: RunHistory) -> dict[str, Any] | None:
    """Return the table of evaluations; ``None`` without any.

    It has about ``MAX_EVALUATIONS_SHOWN`` rows at most: every n-th evaluation, the best and the
    last one.
    """
    records = history.validation
    best = history.best
    if best is None:
        return None
    terms = history.names("losses")
    if len(terms) < 2:  # A single term equals the loss.
        terms = []
    metrics = history.names("metrics")
    interval = -(-len(records) // MAX_EVALUATIONS_SHOWN)
    rows: list[list[str]] = []
    best_row = 0
    for number, record in enumerate(records):
        is_last = number == len(records) - 1
        if number % interval and record is not best and not is_last:
            continue
        if record is best:
            best_row = len(rows)
        row = [f"{record['step']:,}", _format_value(record["loss"])]
        row += [_format_value(record.get("losses", {}).get(term)) for term in terms]
        row += [_format_value(record.get("metrics", {}).get(metric)) for metric in metrics]
        rows.append(row)
    best_name = history.best_name
    if best_name == "lowest":
        best_name = "the lowest loss"
    return {
        "header": ["step", "loss", *(name.replace("_", " ") for name in (*terms, *metrics))],
        "rows": rows,
        "best": best_row,
        "best_name": best_name,
        "interval": interval,
        "count": f"{len(records):,}",
    }


def _format_value(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _scores(scores: ScoresRecord | None) -> dict[str, Any] | None:
    """Return the section of a distilled model; ``None`` without scores."""
    if scores is None:
        return None
    note = (
        f"{scores.data}, {scores.rows:,} rows; latency of one row of {scores.seq_len} tokens, "
        f"tokens/s in batches of {scores.batch_size}"
    )
    if scores.retention is not None:
        note = f"{scores.retention:.1%} of the teacher's quality by {scores.metric}; {note}"
    charts = []
    chart = score_chart(scores)
    if chart is not None:
        charts.append(chart)
    return {
        "note": note,
        "header": score_header(scores),
        "rows": score_rows(scores),
        "charts": charts,
    }


def format_duration(seconds: float) -> str:
    """Format a duration: ``2 d 3 h``, ``1 h 5 min``, ``2 min 3 s``, ``4.2 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds < 86400:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{int(seconds // 86400)} d {int(seconds % 86400 // 3600)} h"
