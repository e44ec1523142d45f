"""The command ``zoo convert``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.completion import FAMILY, HEAD, MODEL_TYPE
from zoo.cli.options import (
    common_options,
    force_option,
    global_tokens_option,
    hub_options,
    output_option,
    reference_argument,
    shared_option,
)
from zoo.cli.output import result
from zoo.cli.parameter_types import REFERENCE, IntegerRange
from zoo.cli.training.options import data_option


@click.command(
    epilog="""\b
Examples:
  zoo convert all-minilm-l6-v2
  zoo convert ./hub-directory -o ./model --dtype float16
  zoo convert ./model --to hub -o ./hub-directory
  zoo convert ./tensorflow/model.ckpt -o ./model
  zoo convert organisation/name --dry-run
  zoo convert ./peft-adapter --base REF -o ./adapter
  zoo convert ./adapter --to hub -o ./peft-adapter
  zoo convert ./model --head sequence-classification --init-head \\
      --labels no,yes -o ./start
  zoo convert ./model --max-seq-len 2048 --eval texts.txt -o ./longer"""
)
@reference_argument
@output_option()
@click.option(
    "--to",
    type=click.Choice(["zoo", "hub"]),
    default="zoo",
    show_default=True,
    help="Layout of the output: zoo's or the Hub's.",
)
@click.option(
    "--head",
    type=HEAD,
    metavar="H",
    help="Head of the model.  [default: inferred from the tensors]",
)
@shared_option("dtype", "Dtype of the stored weights.  [default: as in the source]")
@click.option(
    "--init-head", is_flag=True, help="Initialize the head randomly if the source has none."
)
@click.option("--labels", metavar="A,B,...", help="Labels of the new head.")
@click.option(
    "--model-type",
    type=MODEL_TYPE,
    metavar="T",
    help="Model type, for a config.json without one.",
)
@shared_option("tokenizer", "Model whose tokenizer is used.", type=REFERENCE)
@click.option(
    "--allow-pickle", is_flag=True, help="Read PyTorch .bin files; nothing in them is executed."
)
@click.option(
    "--ignore-crc", is_flag=True, help="Read .bin files that were written without checksums."
)
@shared_option(
    "licence",
    "Licence in the manifest and the model card, such as apache-2.0.  [default: the source's]",
)
@click.option(
    "--base",
    type=REFERENCE,
    metavar="REF",
    help="Model that an adapter changes.  [default: the one that it names]",
)
@shared_option(
    "max_seq_len",
    "Number of tokens that the result reads, more than the source.",
    type=IntegerRange(1),
)
@click.option(
    "--rope-scaling",
    type=click.Choice(["linear", "dynamic", "yarn"]),
    help="With --max-seq-len, scaling of rotary frequencies.  [default: yarn]",
)
@click.option(
    "--position-init",
    type=click.Choice(["repeat", "interpolate"]),
    help="With --max-seq-len, values of new learned positions.  [default: repeat]",
)
@data_option("eval_data", "With --max-seq-len, text whose perplexity is measured before and after.")
@click.option(
    "--family",
    type=FAMILY,
    metavar="F",
    help="With --max-seq-len, family with attention to windows that takes over the weights.",
)
@global_tokens_option
@click.option("--dry-run", is_flag=True, help="Read only headers and print how tensors map.")
@hub_options
@force_option
@common_options
def command(
    ref: str, output: Path | None, eval_data: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Convert a checkpoint, with every tensor accounted for.

    Every tensor of the source is mapped, dropped for a stated reason, or tied, and every
    parameter of the model is filled; otherwise the exit code is 3 and nothing is written. The
    source is rebuilt from the result and compared bit for bit before the result is published.
    """
    from zoo.api.conversion import convert
    from zoo.conversion.report import ConversionReport
    from zoo.position_growth.lengthen import Lengthened

    report = convert(ref, output=output, eval=eval_data, **options)
    lines = list(report.lines())
    if isinstance(report, ConversionReport | Lengthened):
        lines.append(f"wrote {report.path}" if report.path else "nothing was written")
    result(report.to_dict(), lines, as_json=as_json)
