"""Byte pair encoding models from ``vocab.json`` and ``merges.txt``."""

from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.limits import MAX_TOKENIZER_VALUES
from zoo.io.sizes import check_size
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.source_files import MERGES, VOCAB_JSON, SourceFiles, other_kind
from zoo.tokenizers.untrusted.definition import check_ids

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def has_merges(files: SourceFiles) -> bool:
    """Return ``True`` if a directory has both files."""
    return files.has(VOCAB_JSON) and files.has(MERGES)


def from_merges(files: SourceFiles, **options: Any) -> "Tokenizer":
    """Build a tokenizer with the model, without normalizer and pre-tokenizer."""
    from tokenizers import Tokenizer, models

    if not has_merges(files):
        raise other_kind(files, f"{VOCAB_JSON} with {MERGES}")
    vocabulary = files.json(VOCAB_JSON)
    check_ids(vocabulary, files.path(VOCAB_JSON), len(files.bytes(VOCAB_JSON)))
    path = files.path(MERGES)
    text = files.text(MERGES)
    # Each merge splits a token in two: there are at most as many as the tokens have characters.
    # More lines are the version and the empty end of the file.
    room = sum(map(len, vocabulary)) + 2
    check_size(path, "number of merges", text.count("\n"), MAX_TOKENIZER_VALUES, room=room)
    merges = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if line and not line.startswith("#version"):
            parts = line.split(" ")
            if len(parts) != 2 or not all(parts):
                raise VerificationError(f"{path}, line {number}: {line!r} is not a pair")
            merges.append((parts[0], parts[1]))
    with rust_parsing(path, "a list of merges"):
        return Tokenizer(models.BPE(vocab=vocabulary, merges=merges, **options))
