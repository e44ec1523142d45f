"""Whether two files of one checkpoint describe the same tokenizer, asked with a few hard texts."""

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import VerificationError
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.source_files import TOKENIZER_JSON, SourceFiles

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# One text a line: short, of many scripts, and without anything that published pairs of files
# disagree on: spaces at the end, control characters, special tokens spelled out, and the like.
TEXTS = "probe.txt"


def check_same_tokenization(
    files: SourceFiles, stored: "Tokenizer", source: "Tokenizer", name: str, *, whole: bool = False
) -> None:
    """Check that ``tokenizer.json`` and the file that it was made from give the same ids.

    Args:
        files: where both are.
        stored: what ``tokenizer.json`` describes. Truncation and padding are switched off.
        source: the tokenizer from the other file. It is changed.
        name: the other file.
        whole: whether the other file also says how texts are normalized and split; else that is
            taken from ``stored``.

    Raises:
        VerificationError: a text has other ids.
    """
    stored.no_truncation()
    stored.no_padding()
    if not whole:
        source.normalizer, source.pre_tokenizer = stored.normalizer, stored.pre_tokenizer
    one = _ids(stored, files.path(TOKENIZER_JSON))
    other = _ids(source, files.path(name))
    for text in _texts():
        if (found := one(text)) != (wanted := other(text)):
            raise VerificationError(
                f"{files.directory}: {TOKENIZER_JSON} and {name} differ on {text!r}: "
                f"{_excerpt(found, wanted)}",
                "they belong to different tokenizers: remove the one that is not the model's",
            )


def _texts() -> list[str]:
    texts = resources.files(__package__).joinpath(TEXTS).read_bytes().decode("utf-8")
    return texts.split("\n")


def _ids(tokenizer: "Tokenizer", path: Path) -> Callable[[str], list[int]]:
    def ids(text: str) -> list[int]:
        with rust_parsing(path, "a tokenizer"):
            return list(tokenizer.encode(text, add_special_tokens=False).ids)

    return ids


def _excerpt(found: list[int], wanted: list[int]) -> str:
    """Return the ids from the first that differs."""
    pairs = zip(found, wanted, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(found), len(wanted)))
    return f"{found[first : first + 4]} and {wanted[first : first + 4]} from token {first + 1} on"
