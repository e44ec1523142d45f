"""``zoo bench``."""

from dataclasses import asdict
from typing import Any

import click

from zoo.cli.options import hub_options, json_option, reference_argument, seed_option
from zoo.cli.output import result, table


@click.command(
    epilog="""\b
Examples:
  zoo bench all-minilm-l6-v2
  zoo bench ./model --backend cpu --backend onnx --batch 1 --tokens 32"""
)
@reference_argument
@click.option(
    "--backend",
    "backends",
    multiple=True,
    type=click.Choice(["auto", "cpu", "cuda", "onnx"]),
    help="What to measure; several are measured in turn.  [default: cpu and onnx]",
)
@click.option("--batch-size", type=click.IntRange(1), default=8, show_default=True, metavar="N")
@click.option("--seq-len", type=click.IntRange(1), default=128, show_default=True, metavar="N")
@click.option("--iterations", type=click.IntRange(1), default=20, show_default=True, metavar="N")
@click.option("--dtype", metavar="D", help="Such as float32 or bfloat16.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="CPU threads.")
@seed_option
@hub_options
@json_option
def command(
    ref: str,
    backends: tuple[str, ...],
    dtype: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure a model on one or several backends, side by side in one run.

    Each gets the same tokens in turn, round by round. Their answers are compared first.
    """
    from zoo.convert.on_first_use import resolve_checkpoint
    from zoo.inference import open_session
    from zoo.inference.bench import measure

    work = {name: options.pop(name) for name in ("batch_size", "seq_len", "iterations", "seed")}
    checkpoint = resolve_checkpoint(ref, **options)
    sessions = [
        open_session(checkpoint, backend, dtype=dtype, threads=threads)
        for backend in backends or ("cpu", "onnx")
    ]
    found = measure(checkpoint, sessions, **work)
    value = {
        "reference": ref,
        **work,
        "results": [
            {**asdict(m), "median": m.median, "tokens_per_second": m.tokens_per_second}
            for m in found
        ],
    }
    rows = [
        (
            f"{m.backend} ({m.device}, {m.dtype})",
            f"{m.median * 1e3:.2f}",
            f"{m.tokens_per_second:,.0f}",
            f"{found[0].median / m.median:.2f}",
            f"{m.difference:.1e}",
        )
        for m in found
    ]
    header = ("backend", "median ms", "tokens/s", "speed", "difference")
    result(value, table(rows, header), as_json=as_json)
