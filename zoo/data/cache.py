"""Caches of corpora, each built at its first use, and of arrays that are computed from them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from blake3 import blake3
from numpy.lib import format as npy
from numpy.typing import NDArray

from zoo.data.build import CorpusSpec, build
from zoo.data.corpus import DEFAULT_EVAL_FRACTION, FORMAT_VERSION, Corpus, is_corpus
from zoo.data.readers.documents import ReaderConfig
from zoo.data.tokenizer import ExistingTokenizer, TokenizerToTrain
from zoo.errors import UsageError
from zoo.io.cached_files import cached_files
from zoo.io.paths import home
from zoo.version import __version__

LOG = logging.getLogger("zoo")
SAMPLE = Path(__file__).parent / "sample"
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
        paths or sorted(SAMPLE.glob("*.txt")),
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


def _cache_key(spec: CorpusSpec) -> str:
    """Return a digest of everything that a corpus depends on, without the names of files."""
    digests: dict[str, list[str]] = {}
    suffixes = []
    for split, files in spec.files.items():
        digests[split] = [spec.sources[str(file)].blake3 for file in files]
        suffixes += [file.suffixes for file in files]
    parts = [FORMAT_VERSION, __version__, digests, suffixes, spec.settings()]
    return blake3(msgspec.json.encode(parts)).hexdigest(8)


Arrays = Mapping[str, NDArray[Any]]


def cached_arrays(kind: str, key: str, make: Callable[[], Arrays]) -> dict[str, NDArray[Any]]:
    """Return arrays by name, made and written by the first process that needs them.

    Other processes wait for it and map its files. Damaged files are replaced. If the cache cannot
    be written, each process makes its own arrays in memory.
    """
    arrays: Arrays | None = None

    def write(directory: Path) -> None:
        nonlocal arrays
        arrays = make()
        for name, array in arrays.items():
            contiguous = np.ascontiguousarray(array)
            with (directory / f"{name}.npy").open("wb") as file:
                npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(contiguous))
                # np.save hides the system's error, such as a full disk.
                file.write(contiguous.data)

    mapped_arrays = cached_files(kind, key, write, _map)
    if mapped_arrays:
        return mapped_arrays
    if arrays is None:
        arrays = make()
    return dict(arrays)


def _map(directory: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a directory, mapped to memory."""
    arrays = {}
    for path in sorted(directory.glob("*.npy")):
        arrays[path.stem] = np.load(path, mmap_mode="r", allow_pickle=False)
    return arrays
