"""The command ``zoo retokenize``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import (
    common_options,
    count_option,
    force_option,
    hub_options,
    output_option,
    reference_argument,
    seed_option,
    shared_option,
)
from zoo.cli.output import result, table
from zoo.cli.parameter_types import REFERENCE
from zoo.cli.training.options import data_option, normalization_options

MEANINGS = {
    "kept": "the row of the same token",
    "composed": "the mean of the rows of the token's parts",
    "new": "random, with mean and deviation of the old rows",
}


@click.command(
    epilog="""\b
Examples:
  zoo retokenize REF --tokenizer train --train german/ \\
      --vocab-size 20000 -o german
  zoo retokenize REF --tokenizer REF -o DIR
  zoo retokenize REF --tokenizer tokenizer.json --method random -o DIR"""
)
@reference_argument
@shared_option(
    "tokenizer",
    "Tokenizer of a model or a file, or train to train one.",
    type=REFERENCE,
    metavar="REF|FILE|train",
    required=True,
)
@data_option("train", "Text to train the tokenizer on; may be repeated.")
@count_option("--vocab-size", "Size of a tokenizer to train.  [default: the model's]")
@normalization_options
@click.option(
    "--method",
    type=click.Choice(["mean", "random"]),
    default="mean",
    show_default=True,
    help="Rows of new tokens: the mean of their parts' rows, or random.",
)
@click.option("--no-keep", is_flag=True, help="Keep no row: all are random.")
@seed_option
@output_option(required=True)
@hub_options
@force_option
@common_options
def command(
    ref: str,
    tokenizer: str,
    train: tuple[str, ...],
    output: Path,
    no_keep: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Give a model the vocabulary of another tokenizer.

    Tokens that both vocabularies have keep their rows of embeddings, by what they spell, and every
    row is accounted for. The result is a model; train it further with zoo pretrain --init-from.
    """
    from zoo.api.conversion import retokenize
    from zoo.retokenization.retokenize import RECORD

    done = retokenize(
        ref, tokenizer=tokenizer, train=train, output=output, keep=not no_keep, **options
    )
    counts = done.plan.counts
    rows = [
        (kind, f"{count:,}", MEANINGS[kind], " ".join(done.examples[kind]))
        for kind, count in counts.items()
    ]
    lines = [
        f"{done.plan.size:,} tokens, {done.before:,} before; a row each in "
        f"{', '.join(done.tensors)}",
        *table(rows, ("rows", "number", "values", "such as")),
        f"wrote {output}; {output / RECORD} lists the rows",
    ]
    result(done.to_dict(), lines, as_json=as_json)
