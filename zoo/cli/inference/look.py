"""The command ``zoo look``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import (
    common_options,
    count_option,
    device_option,
    hub_options,
    reference_argument,
    shared_option,
)
from zoo.cli.output import line, result
from zoo.cli.parameter_types import IntegerRange, OutputFile, ReferenceType
from zoo.cli.texts import refuse_file_name, text_is_text_option
from zoo.inspection.formats import PAGES, VIEWS

PAGE = "look.html"


@click.command(
    epilog="""\b
Examples:
  zoo look MODEL "She sat on the [MASK] of the river."
  zoo look DECODER "The river flows" --json > numbers.json
  zoo look SEQ2SEQ "summarize: a long text" --text-target "a text"

\b
Two texts are compared, such as a word with two meanings:
  zoo look MODEL "on the bank" "the bank paid" -o bank.html

\b
Models are compared on the same text, next to each other:
  zoo look MODEL "She sat on the bank." --compare DECODER --compare SEQ2SEQ

\b
A picture for a paper or a slide has one view:
  zoo look MODEL "She sat on the bank." -o bank.svg --layer 3 --head 5
  zoo look MODEL "She sat on the [MASK]." -o mask.png --view predictions"""
)
@reference_argument
@click.argument("texts", nargs=-1, required=True, metavar="TEXT [TEXT]")
@click.option(
    "--compare",
    metavar="REF",
    multiple=True,
    type=ReferenceType(),
    help="Model that reads the same texts, next to REF on the page. May be repeated.",
)
@click.option(
    "--text-target",
    metavar="TEXT",
    help="Text that the decoder of an encoder-decoder reads.  [default: what it generates]",
)
@text_is_text_option
@shared_option(
    "max_seq_len", "Cut texts at this number of tokens.  [default: 64]", type=IntegerRange(1)
)
@count_option("--top-k", "Number of predictions to keep for each position.", default=5)
@shared_option(
    "output",
    f"Page (.html) or picture (.svg, .png) to write.  [default: {PAGE}, or none with --json]",
    metavar="FILE",
    type=OutputFile(),
)
@click.option(
    "--view",
    type=click.Choice(VIEWS),
    help="What a picture shows.  [default: attention; similarity if the model computes none]",
)
@click.option(
    "--layer",
    metavar="N",
    type=IntegerRange(0),
    help="Layer that a picture shows; 0 is the embeddings.  [default: the last one; for "
    "predictions, all]",
)
@click.option(
    "--head",
    metavar="N",
    type=IntegerRange(1),
    help="Head whose attention a picture shows.  [default: the mean of all heads]",
)
@shared_option("force", "Replace the file.")
@device_option
@hub_options
@common_options
def command(
    ref: str,
    texts: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    text_is_text: bool,
    **options: Any,
) -> None:
    """Draw what the layers of a model compute for one or two texts, as a page or a picture.

    The page has the attention of all heads, the similarity of the tokens' vectors in all layers,
    what each layer predicts through the model's head, and the mix of layers where the model has
    one. It is one file without network access. A name that ends in .svg or .png writes a picture
    of one view instead. --json prints all numbers exactly.
    """
    from zoo.api.inspection import look

    if not text_is_text:
        refuse_file_name(texts, '"$(cat FILE)"')
    target = output or (None if as_json else Path(PAGE))
    output_name = "page" if target is None or target.suffix.lower() in PAGES else "picture"
    numbers = look(ref, texts, output=target, **options)
    if as_json:
        value = numbers.to_json()
        if target is not None:
            value[output_name] = str(target)
        result(value, (), as_json=True)
    else:
        line(f"{output_name}: {target}")
