"""``zoo corpus``."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from zoo.cli import LazyGroup
from zoo.cli.completion import FAMILY
from zoo.cli.options import (
    common_options,
    count_option,
    force_option,
    offline_option,
    output_option,
    seed_option,
    shared_option,
)
from zoo.cli.output import result, table
from zoo.cli.parameter_types import REFERENCE, FiniteRange, InputFile
from zoo.cli.training.options import (
    data_option,
    document_separator_option,
    normalization_options,
    text_key_option,
)

if TYPE_CHECKING:
    from zoo.data.tokenizer import ExistingTokenizer, TokenizerToTrain

# Options of a tokenizer to train.
TRAINING_OPTIONS = (
    "tokenizer_type",
    "vocab_size",
    "lowercase",
    "strip_accents",
    "tokenizer_sample_chars",
)


@click.group(
    cls=LazyGroup,
    table={
        "build": ("zoo.cli.training.corpus:build", "Tokenize texts into a corpus."),
        "clean": (
            "zoo.cli.training.corpus_clean:command",
            "Drop texts and lines that are no prose, and duplicates.",
        ),
        "inspect": (
            "zoo.cli.training.corpus_inspect:command",
            "Show lengths, duplicates and tokens of texts.",
        ),
    },
    epilog="""\b
Examples:
  zoo corpus inspect crawl/
  zoo corpus clean crawl/ -o clean --rule c4 --deduplicate lines
  zoo corpus build clean/ -o web --tokenizer all-minilm-l6-v2""",
)
def command() -> None:
    """Inspect and clean texts, and build tokenized corpora."""


@click.command(
    epilog="""\b
Examples:
  zoo corpus build books/ -o corpus --tokenizer all-minilm-l6-v2
  zoo corpus build 'crawl/**/*.jsonl.zst' -o corpus \\
      --tokenizer ./model --text content
  zoo corpus build novel.txt -o corpus --tokenizer train \\
      --family NAME --vocab-size 8000

A directory stands for all files in it; .jsonl, .json, .csv, .tsv and .parquet have
a document per row, every other file is text. .gz and .zst are decompressed. A PATH
may be a URL, such as s3://bucket/books/, and - is standard input."""
)
@click.argument("paths", metavar="PATH...", type=InputFile(), nargs=-1, required=True)
@output_option("Directory to write.", required=True)
@shared_option(
    "tokenizer",
    "Tokenizer of a model or corpus, or train to train one on the texts.",
    type=REFERENCE,
    metavar="REF|train",
    required=True,
)
@click.option(
    "--family", type=FAMILY, metavar="F", help="Family that the tokenizer is trained for."
)
@click.option(
    "--tokenizer-type",
    type=click.Choice(["wordpiece", "byte-level-bpe", "unigram", "words"]),
    help="Type of the tokenizer to train.  [default: the family's]",
)
@count_option(
    "--vocab-size", "Vocabulary size of a trained tokenizer, with special tokens.  [default: 30000]"
)
@normalization_options
@count_option(
    "--tokenizer-sample-chars",
    "Number of characters that a tokenizer is trained on, evenly sampled.  [default: 100 million]",
)
@document_separator_option
@click.option(
    "--sentence-splitter",
    type=click.Choice(["rule", "line"]),
    default="rule",
    show_default=True,
    help="Split sentences by rule, or take each line as one.",
)
@text_key_option
@click.option(
    "--eval-fraction",
    type=FiniteRange(0, 1, max_open=True),
    default=0.01,
    show_default=True,
    metavar="SHARE",
    help="Fraction of the documents to hold out.",
)
@data_option(
    "eval_data",
    "Held-out texts instead of a fraction; may be repeated.",
)
@seed_option
@count_option("--workers", "Number of tokenizer processes.")
@offline_option
@force_option
@common_options
def build(
    paths: tuple[str, ...],
    output: Path,
    workers: int | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Tokenize texts into a corpus of memory-mapped shards, with held-out documents.

    The boundaries of documents and sentences are stored. The corpus depends only on the
    texts, the tokenizer and the seed. One document at a time is held in memory.
    """
    from zoo.data.build import CorpusSpec
    from zoo.data.build import build as make
    from zoo.data.readers.documents import ReaderConfig
    from zoo.data.tokenizer import corpus_tokenizer_description
    from zoo.io.output.overwrite import check_target

    sources = [Path(path) for path in (options["tokenizer"],) if path and Path(path).exists()]
    check_target(output, force=force, sources=sources)
    reader = ReaderConfig(
        document_separator=options["document_separator"],
        sentence_splitter=options["sentence_splitter"],
        text_field=options["text"],
    )
    plan = CorpusSpec(
        paths,
        _tokenizer(options),
        reader,
        options["eval_fraction"],
        options["eval_data"],
        options["seed"],
    )
    corpus = make(plan, output, workers=workers, force=force)
    record = corpus.record
    rows = [
        (name, f"{s.documents:,}", f"{s.sentences:,}", f"{s.tokens:,}")
        for name, s in record.splits.items()
    ]
    lines = table(rows, ("split", "documents", "sentences", "tokens"))
    lines.append(f"tokenizer: {corpus_tokenizer_description(corpus)}")
    value = {
        "path": str(output),
        "vocab_size": record.vocab_size,
        "dtype": record.dtype,
        "splits": {
            name: {"documents": s.documents, "sentences": s.sentences, "tokens": s.tokens}
            for name, s in record.splits.items()
        },
        "normalization": msgspec.to_builtins(record.normalization),
    }
    result(value, [*lines, f"wrote {output}"], as_json=as_json)


def _tokenizer(options: Mapping[str, Any]) -> "ExistingTokenizer | TokenizerToTrain":
    from zoo.data.tokenizer import SAMPLE_CHARS, TRAIN, TokenizerToTrain, load_tokenizer
    from zoo.errors import UsageError
    from zoo.plugins import get_family

    family = get_family(options["family"]) if options["family"] else None
    if options["tokenizer"] != TRAIN:
        for name in TRAINING_OPTIONS:
            if options[name] is not None:
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag} is for a tokenizer to train", "--tokenizer train")
        return load_tokenizer(options["tokenizer"], family, offline=options["offline"])
    if family is None:
        raise UsageError("--tokenizer train needs to know for whom", "give --family")
    return TokenizerToTrain.for_family(
        family,
        vocab_size=options["vocab_size"] or 30_000,
        tokenizer_type=options["tokenizer_type"],
        lowercase=options["lowercase"],
        strip_accents=options["strip_accents"],
        sample_chars=options["tokenizer_sample_chars"] or SAMPLE_CHARS,
    )
