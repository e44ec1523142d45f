"""Comparison of two definitions of a checkpoint's tokenizer on a few difficult texts."""

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import VerificationError
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.source_files import TOKENIZER_JSON, SourceFiles

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# One text per line, in many scripts, without inputs on which the two files of published checkpoints
# differ: trailing spaces, control characters, special tokens in the text, and the like.
TEXTS = "probe.txt"


def check_same_tokenization(
    files: SourceFiles, stored: "Tokenizer", source: "Tokenizer", name: str, *, whole: bool = False
) -> None:
    """Check that ``tokenizer.json`` and a vocabulary file give the same token ids.

    Args:
        files: files of the checkpoint.
        stored: tokenizer of ``tokenizer.json``, which is modified.
        source: tokenizer of the vocabulary file, which is modified.
        name: name of the vocabulary file.
        whole: whether the vocabulary file also defines normalization and splitting; otherwise
            ``source`` gets them from ``stored``.

    Raises:
        VerificationError: they differ.
    """
    stored.no_truncation()
    stored.no_padding()
    if not whole:
        source.normalizer = stored.normalizer
        source.pre_tokenizer = stored.pre_tokenizer
    stored_ids = _ids(stored, files.path(TOKENIZER_JSON))
    source_ids = _ids(source, files.path(name))
    for text in resources.files(__package__).joinpath(TEXTS).read_text("utf-8").split("\n"):
        first = stored_ids(text)
        second = source_ids(text)
        if first != second:
            start = _first_difference(first, second)
            raise VerificationError(
                f"{files.directory}: {TOKENIZER_JSON} and {name} differ on {text!r}: "
                f"{first[start : start + 4]} and {second[start : start + 4]} from token "
                f"{start + 1} on",
                "they belong to different tokenizers: remove the one that is not the model's",
            )


def _first_difference(first: list[int], second: list[int]) -> int:
    """Return the index from which two different lists differ."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))


def _ids(tokenizer: "Tokenizer", path: Path) -> Callable[[str], list[int]]:
    def ids(text: str) -> list[int]:
        with rust_parsing(path, "a tokenizer"):
            return list(tokenizer.encode(text, add_special_tokens=False).ids)

    return ids
