"""Tokenizers of XLM and FlauBERT."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zoo.errors import UsageError
from zoo.tokenizers import CLS_SEP, SourceFiles, wordpiece_tokenizer
from zoo.tokenizers.source_files import MERGES

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def tokenizer(files: SourceFiles, roles: Mapping[str, str]) -> "Tokenizer":
    """Build the tokenizer of a model that was trained here.

    Raises:
        UsageError: the files are those of a published model.
    """
    if files.has(MERGES):
        raise UsageError(
            f"{files.path(MERGES)}: texts of this tokenizer are split into words by Moses' "
            "scripts, which zoo does not run",
            "convert a copy of the directory without the files of the tokenizer",
        )
    return wordpiece_tokenizer(files, roles=roles, template=CLS_SEP)
