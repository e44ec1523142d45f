"""The cache of corpora, each built at its first use."""

import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec
from blake3 import blake3

from zoo.data.build import CorpusSpec, build
from zoo.data.corpus import DEFAULT_EVAL_FRACTION, FORMAT_VERSION, Corpus, is_corpus
from zoo.data.readers.documents import ReaderConfig
from zoo.data.tokenizer import ExistingTokenizer, TokenizerToTrain
from zoo.errors import UsageError
from zoo.io.paths import home
from zoo.io.remote.cache import fetch
from zoo.version import __version__

LOG = logging.getLogger("zoo")
SAMPLE = Path(__file__).parent / "sample"
SAMPLE_FILES = sorted(SAMPLE.glob("*.txt"))
SAMPLE_EVAL_FRACTION = 0.1  # The sample has few documents.


def cached_corpus(
    paths: Sequence[str | Path],
    tokenizer: ExistingTokenizer | TokenizerToTrain,
    *,
    reader: ReaderConfig | None = None,
    eval_fraction: float | None = None,  # by default 0.01, and 0.1 for the corpus of the package
    eval_paths: Sequence[str | Path] = (),  # held-out files, in place of a fraction
    seed: int = 0,
    workers: int | None = None,
) -> Corpus:
    """Return the corpus of some texts, built now if the cache does not have it.

    ``paths`` may be one prebuilt corpus, which keeps its tokenizer, or empty for the package's.
    """
    if len(paths) == 1:
        paths = [fetch(paths[0])]
    if len(paths) == 1 and is_corpus(Path(paths[0])):
        if eval_paths:
            raise UsageError(
                f"{paths[0]} is a built corpus, which has held-out documents of its own",
                "leave --eval out, or build the corpus with it",
            )
        return Corpus(Path(paths[0]))
    if eval_fraction is None:
        eval_fraction = DEFAULT_EVAL_FRACTION if paths else SAMPLE_EVAL_FRACTION
    spec = CorpusSpec(
        paths or SAMPLE_FILES,
        tokenizer,
        reader or ReaderConfig(),
        eval_fraction,
        eval_paths,
        seed,
    )
    source = spec.paths[0] if paths else SAMPLE
    name, _, _ = Path(source).resolve().name.partition(".")
    target = home() / "corpora" / f"{name}-{_cache_key(spec)}"
    if not is_corpus(target):
        LOG.info("building the corpus %s", target)
        try:
            build(spec, target, workers=workers)
        except UsageError:
            if not is_corpus(target):  # Otherwise another process has built it.
                raise
    return Corpus(target)


def is_built_corpus(paths: Sequence[str | Path]) -> bool:
    """Return whether paths are one built corpus."""
    return len(paths) == 1 and is_corpus(Path(fetch(paths[0])))


def _cache_key(spec: CorpusSpec) -> str:
    """Return a digest of everything that a corpus depends on, without the names of files."""
    digests: dict[str, list[str]] = {}
    suffixes = []
    for split, files in spec.files.items():
        digests[split] = [spec.sources[str(file)].blake3 for file in files]
        suffixes += [file.suffixes for file in files]
    parts = [FORMAT_VERSION, __version__, digests, suffixes, spec.settings()]
    return blake3(msgspec.json.encode(parts)).hexdigest(8)
