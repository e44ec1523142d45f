"""The command ``zoo bench``."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.api.arguments import TORCH_BACKENDS
from zoo.cli.options import (
    common_options,
    count_option,
    hub_options,
    reference_argument,
    seed_option,
    shared_option,
)
from zoo.cli.output import note, result, table
from zoo.cli.parameter_types import IntegerRange, LocalPath, TargetChoice
from zoo.exporting.targets import ONNX

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.errors import ZooError
    from zoo.exporting.report import Agreement
    from zoo.exporting.startup import Startup
    from zoo.inference import Need, Session
    from zoo.inference.bench import Measurement

FIGURE_FILE = "speed.svg"  # The file of --figures.
# The options of ``measure``.
BATCH_OPTIONS = ("batch_size", "seq_len", "iterations", "new_tokens", "seed")
Pair = tuple[str, str | None]  # Backend and dtype.


@click.command(
    epilog="""\b
Examples:
  zoo bench all-minilm-l6-v2
  zoo bench ./export
  zoo bench ./model --backend cpu --backend onnx --batch-size 1 --seq-len 32
  zoo bench ./model --backend cpu --dtype float32 --dtype bfloat16 \\
      --figures speed"""
)
@reference_argument
@shared_option(
    "backend",
    "Backend to measure; may be repeated.  [default: all that are installed; an export's own]",
    multiple=True,
    type=TargetChoice(TORCH_BACKENDS),
)
@shared_option("batch_size", type=IntegerRange(1), default=8, show_default=True)
@count_option(
    "--seq-len", "Number of tokens per row.  [default: 128, or the model's limit if it is lower]"
)
@count_option("--iterations", "Number of timed batches.", default=20)
@shared_option(
    "dtype",
    "Dtype of the computation, such as float32, bfloat16 or int8; may be repeated.  "
    "[default: the backend's; for an export, all]",
    multiple=True,
)
@click.option(
    "--new-tokens",
    type=IntegerRange(0),
    metavar="N",
    help="Number of tokens that a model which generates text adds to each row; 0 measures a "
    "forward pass.  [default: 32, or what the model's limit leaves]",
)
@shared_option("threads", type=IntegerRange(1))
@click.option(
    "--startup/--no-startup",
    default=True,
    help="Measure start-up time and memory, in a process for each backend.  [default: yes]",
)
@shared_option(
    "figures",
    "Draw throughput and latency, as SVG.",
    type=LocalPath("output"),
)
@seed_option
@hub_options
@common_options
def command(
    ref: str,
    backend: tuple[str, ...],
    dtype: tuple[str, ...],
    threads: int | None,
    startup: bool,
    figures: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure the speed and memory of a model on one or several backends.

    By default all runtimes are measured that are installed and hold the model: torch, ONNX
    Runtime, OpenVINO, CTranslate2 and llama.cpp. Backends and dtypes run the same random batch in
    turn, and then one row of it; models that generate text generate from it. Their
    outputs are compared first; backends that disagree are not timed, and the exit code is 3. Dtypes
    that a backend lacks are skipped and listed.
    Start-up is the time of a new process that opens the model and runs one batch, or generates from
    it, and memory the largest resident set size of that process.

    The fastest of several backends is recorded for this machine; from then on, `--backend auto` of
    zoo run and zoo eval uses it for this model and dtype. The dtype is never changed, since results
    would differ. Forward passes of a model that generates text
    (--new-tokens 0) change nothing.
    """
    import msgspec

    from zoo.adapters.merge import as_whole_model
    from zoo.checkpoint import check_tokenizer
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.exporting.session_agreement import session_agreements
    from zoo.inference.bench import default_new_tokens, default_seq_len, measure
    from zoo.report.figures import figure_path, plot_speeds

    # The path is checked before anything is measured.
    output = None if figures is None else figure_path(figures, FIGURE_FILE)
    batch = {name: options.pop(name) for name in BATCH_OPTIONS}
    # Processes open the model again.
    checkpoint = as_whole_model(resolve_checkpoint(ref, **options))
    check_tokenizer(checkpoint)
    if batch["new_tokens"] is None:
        batch["new_tokens"] = default_new_tokens(checkpoint, batch["seq_len"])
    batch["seq_len"] = batch["seq_len"] or default_seq_len(checkpoint, batch["new_tokens"])
    pairs = _pairs(checkpoint, backend, dtype)
    sessions, errors = _open(checkpoint, pairs, threads, generates=batch["new_tokens"] > 0)
    measurements = measure(checkpoint, list(sessions.values()), **batch)
    agreements = session_agreements(checkpoint, list(sessions.values()))
    path = str(checkpoint.path)
    starts: list[Startup | None] = [None] * len(sessions)
    if startup:
        starts = [_startup(path, *pair, threads, batch) for pair in sessions]
    lines = _table(measurements, agreements, starts, batch["new_tokens"])
    left_out = []
    for (name, requested_dtype), error in errors.items():
        title = f"{name} in {requested_dtype}" if requested_dtype else name
        lines.append(f"left out: {title}: {error}")
        left_out.append({"backend": name, "dtype": requested_dtype, "error": str(error)})
    if batch["new_tokens"] or not default_new_tokens(checkpoint, None):
        lines += _record_fastest(checkpoint, threads, list(sessions), measurements, agreements)
    results = []
    for measurement, agreement, start in zip(measurements, agreements, starts, strict=True):
        values = measurement.to_dict()
        values["agreement"] = msgspec.to_builtins(agreement)
        values["startup"] = msgspec.to_builtins(start)
        results.append(values)
    value = {"reference": ref, **batch, "results": results, "left_out": left_out}
    # The result comes first: the disk of the figure may be full.
    result(value, lines, as_json=as_json)
    if output is not None:
        plot_speeds(output, _speeds(measurements))
        note(f"figure: {output}")


def _record_fastest(
    checkpoint: "Checkpoint",
    threads: int | None,
    pairs: Sequence[Pair],
    measurements: "Sequence[Measurement]",
    agreements: "Sequence[Agreement | None]",
) -> list[str]:
    """Record the fastest backend of each dtype for ``--backend auto``; return lines about it."""
    from zoo.exporting.fastest import save_measurements
    from zoo.exporting.session_agreement import ACCEPTED, agrees

    lines = []
    candidates = []
    for (_, dtype), measurement, agreement in zip(pairs, measurements, agreements, strict=True):
        if agrees(measurement.dtype, agreement):
            candidates.append((dtype, measurement))
        elif len(pairs) > 1:
            session = f"{measurement.backend} in {measurement.dtype}"
            lines.append(f"not for --backend auto: {session}, {ACCEPTED}")
    for dtype, name in save_measurements(checkpoint, threads, candidates).items():
        lines.append(f"--backend auto in {dtype}: {name} from now on")
    return lines


def _pairs(
    checkpoint: "Checkpoint", backends: "Sequence[str]", dtypes: "Sequence[str]"
) -> list[Pair]:
    """Return all pairs of a backend and a dtype; ``None`` is the default of the backend."""
    from zoo.conversion.dtypes import NAMES
    from zoo.inference import QUANTIZED, dtype_name, has_graph_alone
    from zoo.inference.exported import read_export_info

    names = list[str | None]()
    for dtype in dtypes:
        names.append(dtype_name(dtype) if dtype in (*NAMES, *QUANTIZED) else dtype)
    if checkpoint.export_target not in (None, ONNX):
        backends = backends or (checkpoint.export_target,)
        names = names or [None]
    elif has_graph_alone(checkpoint):
        backends = backends or ("onnx",)
        names = names or [*read_export_info(checkpoint).dtypes]
    backends = backends or ("cpu", "onnx", *_runtimes(checkpoint))
    return list(product(dict.fromkeys(backends), dict.fromkeys(names or [None])))


def _runtimes(checkpoint: "Checkpoint") -> "Iterator[str]":
    """Yield the installed runtimes, other than ONNX Runtime, that can hold a model."""
    from zoo.exporting.targets import find_target, target_names

    model = (checkpoint.config, checkpoint.head_name, checkpoint.model.pooling)
    for name in target_names():
        target = find_target(name)
        if (
            name != ONNX
            and target.runs_weights
            and target.writer_problem() is None
            and target.runtime_problem() is None
            and target.refusal(checkpoint.family, *model) is None
            and target.model_problem(checkpoint.family, *model[:2]) is None
        ):
            yield name


def _open(
    checkpoint: "Checkpoint", pairs: list[Pair], threads: int | None, *, generates: bool
) -> "tuple[dict[Pair, Session], dict[Pair, ZooError]]":
    """Return sessions, and the reasons why the other pairs have none."""
    from zoo.errors import UsageError
    from zoo.exporting.quantization.search import DropError
    from zoo.exporting.session import open_session
    from zoo.inference import check_threads

    check_threads(threads)
    needs: tuple[Need, ...] = ("generation",) if generates else ()
    sessions: dict[Pair, Session] = {}
    errors: dict[Pair, ZooError] = {}
    for name, dtype in pairs:
        try:
            session = open_session(checkpoint, name, dtype=dtype, threads=threads, needs=needs)
            if generates:
                session.generator()  # An export may have been made without a generator.
            sessions[name, dtype] = session
        except (UsageError, DropError) as error:
            errors[name, dtype] = error
    if not sessions:
        raise next(iter(errors.values()))
    return sessions, errors


def _startup(
    path: str, backend: str, dtype: str | None, threads: int | None, batch: dict[str, int]
) -> "Startup":
    """Return what a new process takes for its first batch."""
    from zoo.exporting.startup import StartupSettings, measure_startup

    sizes = {name: batch[name] for name in ("batch_size", "seq_len", "new_tokens")}
    return measure_startup(
        StartupSettings(path=path, backend=backend, dtype=dtype, threads=threads, **sizes)
    )


def _speeds(measurements: "Sequence[Measurement]") -> dict[str, tuple[float, ...]]:
    """Return tokens per second and percentiles of the latency in ms, by backend."""
    from zoo.inference.bench import PERCENTILES

    speeds = {}
    for measurement in measurements:
        name = f"{measurement.backend} ({measurement.device}, {measurement.dtype})"
        latencies = [measurement.latency(percent) * 1e3 for percent in PERCENTILES]
        speeds[name] = (measurement.tokens_per_second, *latencies)
    return speeds


def _table(
    measurements: "Sequence[Measurement]",
    agreements: "Sequence[Agreement | None]",
    starts: "Sequence[Startup | None]",
    new_tokens: int,
) -> list[str]:
    """Return a line per backend: its speed relative to the first, latencies of one row."""
    from zoo.inference.bench import PERCENTILES

    rows = []
    for (name, (tokens, *latencies)), measurement, agreement, start in zip(
        _speeds(measurements).items(), measurements, agreements, starts, strict=True
    ):
        row = [name, f"{tokens:,.0f}", f"{measurements[0].median / measurement.median:.2f}"]
        row += [f"{latency:.2f}" for latency in latencies]
        row.append(f"{measurement.bytes / 1e6:,.1f}")
        if start is not None:
            row += [f"{start.seconds:.2f}", f"{start.peak_bytes / 1e6:,.0f}"]
        row.append(f"{measurement.difference:.1e}")
        if agreement is None or agreement.lowest_cosine is None:
            row.append("")
        else:
            row.append(f"{agreement.lowest_cosine:.4f}")
        rows.append(row)
    header = ["backend", "new tokens/s" if new_tokens else "tokens/s", "speed"]
    header += [f"p{percent} ms" for percent in PERCENTILES]
    header.append("files MB")
    if starts[0] is not None:
        header += ["start s", "memory MB"]
    header += ["differs", "cosine"]
    return table(rows, header, drops=("p95 ms", "p99 ms", "speed"), wraps=("backend",))
