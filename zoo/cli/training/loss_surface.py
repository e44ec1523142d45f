"""The command ``zoo loss-surface``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import (
    common_options,
    count_option,
    device_option,
    offline_option,
    shared_option,
)
from zoo.cli.output import result, table
from zoo.cli.parameter_types import FiniteRange, IntegerRange, LocalPath, OutputFile
from zoo.cli.training.options import data_option
from zoo.io.limits import MAX_MARGIN, MAX_THREADS

RUN = LocalPath("file", file_okay=False)


@click.command(
    epilog="""\b
Examples:
  zoo loss-surface runs/sentiment -o curve.svg
  zoo loss-surface runs/both -o curves.svg
  zoo loss-surface runs/both/pretrained runs/both/from-scratch -o plane.png
  zoo loss-surface runs/sentiment --eval train.tsv --json

One run is a curve, from its initial weights (0) to its final ones (1). The
directory of `zoo finetune --from-scratch` has a curve for each model. With
OTHER, losses are on the plane through the initial weights of RUN and the final
weights of both.

The pretrained checkpoint and the data of the run are read again: initial
weights, also those of a new head, follow from the checkpoint and the seed."""
)
@click.argument("run", type=RUN, metavar="RUN")
@click.argument("other", type=RUN, metavar="[OTHER]", required=False)
@data_option("eval_data", "Data to evaluate on.  [default: the run's evaluation data]")
@data_option("train", "Where the run's training data is, if it has moved.")
@count_option(
    "--intervals",
    "Number of intervals between initial and final weights.  [default: 10; 5 on a plane]",
)
@click.option(
    "--margin",
    type=FiniteRange(0, MAX_MARGIN),
    default=0.5,
    show_default=True,
    metavar="PART",
    help="Part of the distance to show before the initial and after the final weights.",
)
@shared_option(
    "output",
    "Picture (.svg, .png), page (.html) or numbers (.json) to write.",
    metavar="FILE",
    type=OutputFile(),
)
@shared_option("force", "Replace the file.")
@device_option
@shared_option("threads", type=IntegerRange(1, MAX_THREADS))
@offline_option
@common_options
def command(
    run: Path,
    other: Path | None,
    eval_data: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compute the loss between the initial and the final weights of fine-tuning."""
    from zoo.api.surfaces import loss_surface

    surface = loss_surface(run, other, eval=eval_data, output=output, **options)
    value = surface.to_json()
    rows = [(name, f"{loss:.4f}") for name, loss in surface.model_losses().items()]
    lines = table(rows, ("weights", "loss"))
    if output is not None:
        value["output"] = str(output)
        lines.append(f"output: {output}")
    result(value, lines, as_json=as_json)
