"""Byte pair encoding from ``vocab.json`` and ``merges.txt``, for whatever splits texts first."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.tokenization.files import MERGES, VOCAB_JSON, SourceFiles, other_kind
from zoo.tokenization.stored import one_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def has_merges(files: SourceFiles) -> bool:
    """Whether a directory holds both files."""
    return files.has(VOCAB_JSON) and files.has(MERGES)


def from_merges(files: SourceFiles, **options: Any) -> "Tokenizer":
    """Build a tokenizer that has the model, and neither normalizer nor anything else.

    Args:
        files: a directory with both files.
        **options: what else the model is told, such as the unknown token.

    Raises:
        SourceError: a file is missing or cannot be read.
        VerificationError: a file is malformed, or a merge makes a token that has no id.
    """
    from tokenizers import Tokenizer, models

    vocabulary, merges = _vocabulary(files), _merges(files)
    try:
        return Tokenizer(models.BPE(vocab=dict(vocabulary), merges=merges, **options))
    except Exception as error:  # the library raises nothing narrower
        raise VerificationError(f"{files.path(MERGES)}: {one_line(error)}") from error


def _vocabulary(files: SourceFiles) -> Mapping[str, int]:
    if not has_merges(files):
        raise other_kind(files, f"{VOCAB_JSON} with {MERGES}")
    found = files.json(VOCAB_JSON)
    numbers: set[int] = set()
    for token, number in found.items():
        if type(number) is not int or not 0 <= number < 2**31 or number in numbers:
            raise VerificationError(
                f"{files.path(VOCAB_JSON)}: {token!r} = {number!r} is no id of its own"
            )
        numbers.add(number)
    return found


def _merges(files: SourceFiles) -> list[tuple[str, str]]:
    """Read the merges; the first line may state a version, and empty lines mean nothing."""
    merges = []
    for number, line in enumerate(files.text(MERGES).split("\n"), 1):
        line = line.removesuffix("\r")
        if not line or line.startswith("#version"):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            raise VerificationError(f"{files.path(MERGES)}, line {number}: {line!r} is no pair")
        merges.append((parts[0], parts[1]))
    return merges
