"""The command ``zoo bench``."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.options import common_options, hub_options, reference_argument, seed_option
from zoo.cli.output import result, table

if TYPE_CHECKING:
    from zoo.inference.bench import Measurement


@click.command(
    epilog="""\b
Examples:
  zoo bench all-minilm-l6-v2
  zoo bench ./model --backend cpu --backend onnx --batch-size 1 --seq-len 32"""
)
@reference_argument
@click.option(
    "--backend",
    "backends",
    multiple=True,
    type=click.Choice(["auto", "cpu", "cuda", "onnx"]),
    help="Backend to measure; may be repeated.  [default: cpu and onnx]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    metavar="N",
    help="Number of rows per batch.",
)
@click.option(
    "--seq-len",
    type=click.IntRange(1),
    metavar="N",
    help="Number of tokens per row.  [default: 128, or the model's limit if it is lower]",
)
@click.option(
    "--iterations",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of timed batches.",
)
@click.option("--dtype", metavar="D", help="Dtype of the computation, such as float32 or bfloat16.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Number of CPU threads.")
@seed_option
@hub_options
@common_options
def command(
    ref: str,
    backends: tuple[str, ...],
    dtype: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure the throughput of a model on one or several backends.

    All backends run the same random batch in turn. Their outputs are compared first; backends
    that disagree are not timed, and the exit code is 3.
    """
    from zoo.convert.on_first_use import resolve_checkpoint
    from zoo.export.session import open_or_export
    from zoo.inference.bench import default_seq_len, measure

    batch = {name: options.pop(name) for name in ("batch_size", "seq_len", "iterations", "seed")}
    checkpoint = resolve_checkpoint(ref, **options)
    batch["seq_len"] = batch["seq_len"] or default_seq_len(checkpoint)
    sessions = [
        open_or_export(checkpoint, backend, dtype=dtype, threads=threads)
        for backend in backends or ("cpu", "onnx")
    ]
    measurements = measure(checkpoint, sessions, **batch)
    value = {
        "reference": ref,
        **batch,
        "results": [
            {**asdict(m), "median": m.median, "tokens_per_second": m.tokens_per_second}
            for m in measurements
        ],
    }
    result(value, _table(measurements), as_json=as_json)


def _table(measurements: "list[Measurement]") -> list[str]:
    """Return a line per backend; speeds are relative to the first."""
    rows = [
        (
            f"{m.backend} ({m.device}, {m.dtype})",
            f"{m.median * 1e3:.2f}",
            f"{m.tokens_per_second:,.0f}",
            f"{measurements[0].median / m.median:.2f}",
            f"{m.difference:.1e}",
        )
        for m in measurements
    ]
    header = ("backend", "median ms", "tokens/s", "speed", "difference")
    return table(rows, header)
