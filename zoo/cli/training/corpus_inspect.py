"""``zoo corpus inspect``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import common_options, offline_option, shared_option
from zoo.cli.output import fields, line, result, shorten, table
from zoo.cli.parameter_types import REFERENCE, InputFile, LocalPath
from zoo.cli.training.options import document_separator_option, text_key_option


@click.command(
    epilog="""\b
Examples:
  zoo corpus inspect crawl/
  zoo corpus inspect 'crawl/*.jsonl.gz' --tokenizer all-minilm-l6-v2 \\
      --language-model lid.176.bin

A PATH may be a URL, such as s3://bucket/crawl/, and - is standard input."""
)
@click.argument("paths", metavar="PATH...", type=InputFile(), nargs=-1, required=True)
@shared_option(
    "tokenizer", "Model whose tokenizer encodes a sample.", type=REFERENCE, metavar="REF"
)
@click.option(
    "--language-model",
    type=LocalPath("file"),
    metavar="FILE",
    help="Model of fastText that identifies the languages of a sample, such as lid.176.bin.",
)
@document_separator_option
@text_key_option
@offline_option
@common_options
def command(
    paths: tuple[str, ...],
    tokenizer: str | None,
    language_model: Path | None,
    offline: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Show what texts are like: lengths, duplicates, frequent lines, languages, tokens.

    The texts are read once. Fractions of duplicates of more than two million texts or lines are
    those of a sample.
    """
    import msgspec

    from zoo.cleaning.inspect import inspect_texts
    from zoo.data.readers.documents import ReaderConfig
    from zoo.data.tokenizer import load_tokenizer

    reader = ReaderConfig(
        document_separator=options["document_separator"], text_field=options["text"]
    )
    existing = None if tokenizer is None else load_tokenizer(tokenizer, offline=offline)
    statistics = inspect_texts(paths, reader, tokenizer=existing, language_model=language_model)
    if as_json:
        result(msgspec.to_builtins(statistics), (), as_json=True)
        return
    values = {
        "texts": f"{statistics.texts:,}",
        "characters": f"{statistics.characters:,}",
        "bytes": f"{statistics.bytes:,}",
        "duplicate texts": f"{statistics.duplicate_texts:.1%}",
        "duplicate lines": f"{statistics.duplicate_lines:.1%}",
    }
    if statistics.tokens is not None:
        values["tokens per byte"] = f"{statistics.tokens.tokens_per_byte:.3f}"
        values["unknown tokens"] = f"{statistics.tokens.unknown:.2%}"
    if statistics.languages:
        languages = list(statistics.languages.items())[:5]
        values["languages"] = ", ".join(f"{name} {share:.1%}" for name, share in languages)
    for text in fields(values):
        line(text)
    lengths = [(quantile, f"{length:,}") for quantile, length in statistics.lengths.items()]
    for text in table(lengths, ("quantile", "characters of a text")):
        line(text)
    frequent_lines = [
        (f"{count:,}", shorten(text, 60)) for text, count in statistics.frequent_lines
    ]
    if frequent_lines:
        for text in table(frequent_lines, ("times", "line")):
            line(text)
