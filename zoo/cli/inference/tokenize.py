"""The command ``zoo tokenize``."""

import sys
from typing import Any

import click

from zoo.cli.options import common_options, offline_option
from zoo.cli.output import result, table
from zoo.cli.parameter_types import REFERENCE
from zoo.cli.texts import refuse_file_name, text_is_text_option


@click.command(
    epilog="""\b
Examples:
  zoo tokenize MODEL "unbelievable"
  zoo tokenize MODEL OTHER ./model "Donaudampfschiff" --json
  zoo tokenize MODEL - < text.txt"""
)
@click.argument("refs", nargs=-1, required=True, metavar="REF...", type=REFERENCE)
@click.argument("text", metavar="TEXT | -")
@text_is_text_option
@offline_option
@common_options
def command(
    refs: tuple[str, ...], text: str, text_is_text: bool, offline: bool, as_json: bool
) -> None:
    """Show how models cut a text, or standard input, into tokens.

    Only the tokenizer of a model is downloaded. --json also has ids, and the start and end of each
    token in characters.
    """
    if not text_is_text:
        refuse_file_name([text], "`- < FILE`")
    from zoo.inspection.tokens import text_tokenizer

    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\r\n")
    models: list[dict[str, Any]] = []
    for ref in refs:
        (encoded,) = text_tokenizer(ref, offline=offline).encode([text], max_tokens=None)
        models.append(
            {
                "model": ref,
                "tokens": list(encoded.tokens),
                "ids": encoded.ids,
                "offsets": [list(span) for span in encoded.offsets],
                "special": encoded.special,
            }
        )
    rows = [[m["model"], str(len(m["tokens"])), " ".join(m["tokens"])] for m in models]
    lines = table(rows, ["model", "tokens", ""])
    result({"text": text, "models": models}, lines, as_json=as_json)
