"""``zoo export``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import (
    force_option,
    hub_options,
    json_option,
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
@click.option("--head", metavar="H", help="The head, by default the checkpoint's.")
@click.option("--dtype", metavar="D", help="float32 (the default) or float16.")
@click.option(
    "--cache/--no-cache",
    default=None,
    help="Keep keys and values, to generate with.  [default: where the head writes]",
)
@click.option("--opset", type=int, metavar="N", help="The ONNX operator set.")
@hub_options
@force_option
@json_option
def command(ref: str, onnx: bool, output: Path | None, as_json: bool, **options: Any) -> None:
    """Export a model to ONNX, and publish it only if it computes the same.

    ONNX Runtime is compared with torch at shapes that were not traced, with padding. A
    difference above the family's tolerance is exit code 3, and nothing is written.

    A model that writes text becomes a graph that takes and returns keys and values, or with an
    encoder two graphs, which `zoo run` and others generate with.
    """
    from zoo.convert.on_first_use import resolve_checkpoint
    from zoo.errors import UsageError
    from zoo.export.export import export_onnx
    from zoo.io.output.overwrite import check_target

    if output is None:
        raise UsageError("a directory to write is needed", "give -o DIR")
    target = {name: options.pop(name) for name in ("cache", "dtype", "opset", "force")}
    check_target(output, force=target["force"])
    checkpoint = resolve_checkpoint(ref, **options)
    report = export_onnx(checkpoint, output, **target)
    result(report.to_dict(), [*report.lines(), f"wrote {output}"], as_json=as_json)
