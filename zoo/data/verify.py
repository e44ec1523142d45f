"""Checks of a corpus on disk: digests of files, token ids and offsets."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.checkpoint import TOKENIZER
from zoo.data.corpus import REBUILD, Corpus
from zoo.data.offsets import Offsets
from zoo.data.readers.documents import CORPUS_MANIFEST
from zoo.errors import VerificationError
from zoo.io.digests.checks import Check, run_check
from zoo.io.digests.files import FileDigest, check_files, check_strays, compute_blake3
from zoo.io.untrusted import parsing

BLOCK_NUMBERS = 1 << 20  # number of values per block


def verify_corpus(path: Path) -> list[Check]:
    """Check a corpus: its manifest, the digest of every file, and the contents of the files.

    Every byte of every file is read. Files that the manifest does not list are errors, except for
    hidden ones.
    """
    checks = [run_check("manifest", partial(check_manifest, path))]
    stages: list[tuple[str, Callable[[Corpus], str]]] = [
        ("digests", check_digests),
        ("tokenizer", check_tokenizer),
        ("contents", check_contents),
    ]
    for name, stage in stages:
        if checks[-1].outcome == "ok":
            checks.append(run_check(name, partial(stage, Corpus(path))))
        else:
            checks.append(Check(name, "not run", "see above"))
    return checks


def check_manifest(path: Path) -> str:
    """Open a corpus, which checks its manifest."""
    record = Corpus(path).record
    return "as it was written" if record.digest else "has no digest: an earlier version wrote it"


def require_intact(
    corpus: Corpus, digest: Callable[[Path], str] = compute_blake3, *, contents: bool = True
) -> None:
    """Raise an error if a corpus was changed since it was built."""
    check_files(corpus.path, listed_files(corpus), CORPUS_MANIFEST, hint=REBUILD, digest=digest)
    check_tokenizer(corpus)
    if contents:
        check_contents(corpus)


def listed_files(corpus: Corpus) -> dict[str, FileDigest]:
    """Return the files of a corpus besides its manifest, with their digests."""
    files: dict[str, FileDigest] = {}
    for split in corpus.record.splits.values():
        files.update(split.files)
    files[TOKENIZER] = FileDigest(
        bytes=len(corpus.tokenizer_json), blake3=corpus.record.tokenizer_digest
    )
    return files


def check_digests(corpus: Corpus) -> str:
    """Check that the files of a corpus match the manifest, and that there are no others."""
    files = listed_files(corpus)
    detail = check_files(corpus.path, files, CORPUS_MANIFEST, hint=REBUILD)
    check_strays(corpus.path, files, CORPUS_MANIFEST, hint="remove them")
    return detail


def check_tokenizer(corpus: Corpus) -> str:
    """Check the size of the tokenizer's vocabulary against the manifest."""
    from tokenizers import Tokenizer

    from zoo.data.encoding import vocabulary_size

    path = corpus.path / TOKENIZER
    with parsing(path, "a tokenizer"):
        size = vocabulary_size(Tokenizer.from_buffer(corpus.tokenizer_json))
    if size != corpus.record.vocab_size:
        raise VerificationError(
            f"{path} has ids below {size:,}, and {CORPUS_MANIFEST} says "
            f"{corpus.record.vocab_size:,}",
            REBUILD,
        )
    return f"ids below {size:,}"


def check_contents(corpus: Corpus) -> str:
    """Check that offsets ascend to the counts of the manifest, and that token ids are in range."""
    for name, record in corpus.record.splits.items():
        split = corpus.split(name)
        folder = corpus.path / name
        _check_offsets(folder / "documents.bin", split.documents, record.sentences)
        _check_offsets(folder / "sentences.bin", split.sentences, record.tokens)
        # Each shard ends where a document ends.
        ends = np.cumsum([len(shard) for shard in split.shards])
        starts = split.document_starts()
        indices = np.searchsorted(starts, ends)
        if not np.array_equal(starts[np.minimum(indices, len(starts) - 1)], ends):
            raise VerificationError(f"{folder}: a document lies in two shards", REBUILD)
        for file, shard in zip(record.shards(name), split.shards, strict=True):
            highest = max((int(block.max()) for block in _blocks(shard)), default=0)
            if highest >= corpus.record.vocab_size:
                raise VerificationError(
                    f"{corpus.path / file} has the id {highest}, and the tokenizer has "
                    f"{corpus.record.vocab_size:,} ids",
                    REBUILD,
                )
    documents = sum(record.documents for record in corpus.record.splits.values())
    return f"{documents:,} documents"


def _check_offsets(path: Path, offsets: Offsets, end: int) -> None:
    """Check that offsets ascend from 0 to the end."""
    is_valid = int(offsets[0]) == 0 and int(offsets[-1]) == end
    previous_offset = -1
    for block in _blocks(offsets):
        ascends = int(block[0]) > previous_offset and bool((block[1:] > block[:-1]).all())
        is_valid = is_valid and ascends
        previous_offset = int(block[-1])
    if not is_valid:
        raise VerificationError(f"{path} does not hold ascending numbers from 0 to {end}", REBUILD)


def _blocks(numbers: NDArray[Any]) -> Iterator[NDArray[Any]]:
    for start in range(0, len(numbers), BLOCK_NUMBERS):
        yield numbers[start : start + BLOCK_NUMBERS]
