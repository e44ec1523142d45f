"""The command ``zoo export``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import (
    common_options,
    force_option,
    hub_options,
    output_option,
    reference_argument,
)
from zoo.cli.output import result


@click.command(
    epilog="""\b
Examples:
  zoo export all-minilm-l6-v2 --onnx -o minilm-onnx
  zoo export ./model --onnx --head none -o ./graph"""
)
@reference_argument
@click.option("--onnx", "onnx", is_flag=True, required=True, help="Export to ONNX.")
@output_option
@click.option("--head", metavar="H", help="Head to export.  [default: that of the checkpoint]")
@click.option(
    "--dtype", metavar="D", help="Dtype of the graph: float32 or float16.  [default: float32]"
)
@click.option(
    "--cache/--no-cache",
    default=None,
    help="Whether the graph has a key-value cache.  [default: if the head generates text]",
)
@click.option("--opset", type=int, metavar="N", help="ONNX operator set version.")
@hub_options
@force_option
@common_options
def command(ref: str, onnx: bool, output: Path | None, as_json: bool, **options: Any) -> None:
    """Export a model to ONNX, after comparing it with torch.

    Outputs of ONNX Runtime and torch are compared at shapes that were not traced, with padding.
    If they differ by more than the tolerance of the family, the exit code is 3 and nothing is
    written.

    A model that generates text is exported with a key-value cache: as one graph, or as encoder
    and decoder.
    """
    from zoo.convert.on_first_use import resolve_checkpoint
    from zoo.errors import UsageError
    from zoo.export.export import export_onnx
    from zoo.io.output.overwrite import check_target

    if output is None:
        raise UsageError("an output directory is needed", "give -o DIR")
    target = {name: options.pop(name) for name in ("cache", "dtype", "opset", "force")}
    check_target(output, force=target["force"])
    checkpoint = resolve_checkpoint(ref, **options)
    report = export_onnx(checkpoint, output, **target)
    result(report.to_dict(), [*report.lines(), f"wrote {output}"], as_json=as_json)
