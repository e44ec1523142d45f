"""Texts, tokenizers and corpora for the tests of this package."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.tokenizers.texts import prose
from zoo.data.build import CorpusSpec, build
from zoo.data.corpus import Corpus, Split
from zoo.data.readers.documents import ReaderConfig
from zoo.data.tokenizer import ExistingTokenizer, TokenizerToTrain
from zoo.plugins import get_family

# two documents, of two sentences and of one, with difficult cases for sentence splitting
SMALL = "Mr. Bell rang. \u201cWho is it?\u201d\nasked the cat.\n\nHe wrote [MASK] \u00e9\u00e0.\n"


def paragraphs(count: int = 60) -> list[str]:
    """Return English paragraphs, one per line."""
    sentences = " ".join(line.strip() for line in prose(4000) if line.strip()).split(". ")
    return [". ".join(sentences[k * 5 : k * 5 + 5]) + "." for k in range(count)]


def trained(
    family: str, size: int = 800, kind: str | None = None, **options: Any
) -> ExistingTokenizer:
    """Return a tokenizer trained on the paragraphs."""
    return TokenizerToTrain.for_family(
        get_family(family), vocab_size=size, tokenizer_type=kind, **options
    ).make(lambda: [paragraphs()])


def built(target: Path, *paths: Path, **options: Any) -> Corpus:
    """Build a corpus of files, by default without held-out documents."""
    make = {k: options.pop(k) for k in ("workers", "force", "shard_bytes") if k in options}
    reading = ReaderConfig(
        **{k: options.pop(k) for k in ReaderConfig.__struct_fields__ if k in options}
    )
    options = {"tokenizer": trained("bert"), "eval_fraction": 0.0, **options}
    return build(CorpusSpec(paths, reader=reading, **options), target, **make)


def contents(split: Split) -> list[list[list[int]]]:
    """Return a split as documents of sentences of token ids."""
    starts = [int(k) for k in split.sentences]
    sentences = [split.read(a, b).tolist() for a, b in pairwise(starts)]
    return [sentences[a:b] for a, b in pairwise(int(k) for k in split.documents)]


def files_of(path: Path) -> dict[str, bytes]:
    """Return the contents of all files of a directory except the manifest."""
    files: Sequence[Path] = sorted(p for p in path.rglob("*") if p.is_file())
    return {str(p.relative_to(path)): p.read_bytes() for p in files if p.name != "corpus.json"}
