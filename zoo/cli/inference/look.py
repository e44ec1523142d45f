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
from zoo.cli.parameter_types import IntegerRange, OutputFile
from zoo.cli.texts import refuse_file_name, text_is_text_option

PAGE = "look.html"


@click.command(
    epilog="""\b
Examples:
  zoo look MODEL "She sat on the [MASK] of the river."
  zoo look DECODER "The river flows" --json > numbers.json
  zoo look SEQ2SEQ "summarize: a long text" --text-target "a text"

\b
Two texts are compared, such as a word with two meanings:
  zoo look MODEL "on the bank" "the bank paid" -o bank.html"""
)
@reference_argument
@click.argument("texts", nargs=-1, required=True, metavar="TEXT [TEXT]")
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
    f"Page to write.  [default: {PAGE}, or no page with --json]",
    metavar="FILE",
    type=OutputFile(),
)
@shared_option("force", "Replace the page.")
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
    """Draw what the layers of a model compute for one or two texts, as an HTML page.

    The page has the attention of all heads, the similarity of the tokens' vectors in all layers,
    what each layer predicts through the model's head, and the mix of layers where the model has
    one. It is one file without network access. --json prints all numbers exactly instead.
    """
    from zoo.api.inspection import look

    if not text_is_text:
        refuse_file_name(texts, '"$(cat FILE)"')
    target = output or (None if as_json else Path(PAGE))
    view = look(ref, texts, output=target, **options)
    if as_json:
        value = view.to_json()
        if target is not None:
            value["page"] = str(target)
        result(value, (), as_json=True)
    else:
        line(f"page: {target}")
