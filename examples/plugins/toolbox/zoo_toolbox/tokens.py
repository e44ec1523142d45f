"""The command ``zoo tokens``."""

from pathlib import Path

import click

from zoo.cli.options import common_options, hub_options, reference_argument
from zoo.cli.output import result


@click.command(epilog='Example: zoo tokens bert-base-uncased "a text"')
@reference_argument
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@hub_options
@common_options
def command(
    ref: str,
    texts: tuple[str, ...],
    revision: str | None,
    offline: bool,
    lock: Path | None,
    as_json: bool,
) -> None:
    """Split each TEXT into the tokens of the model REF."""
    from zoo.checkpoint import load_text_tokenizer
    from zoo.conversion.cache import resolve_checkpoint

    checkpoint = resolve_checkpoint(ref, revision=revision, offline=offline, lock=lock)
    encoded = load_text_tokenizer(checkpoint).encode(texts, max_tokens=None)
    values = [{"tokens": list(e.tokens), "ids": list(e.ids)} for e in encoded]
    lines = [" ".join(e.tokens) for e in encoded]
    result({"texts": values}, lines, as_json=as_json)
