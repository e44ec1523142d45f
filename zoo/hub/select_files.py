"""Selection of the files of a published checkpoint to download or to read, by their names."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from zoo.errors import SourceError, UsageError
from zoo.plugins import all_families, all_formats
from zoo.tokenizers import POOLING_FILES, TOKENIZER_FILES

if TYPE_CHECKING:
    from zoo.io.tensors.formats import Format

CONFIG = "config.json"
SIDE_FILES = (*TOKENIZER_FILES, *POOLING_FILES)  # patterns, beside the configuration
# folders of modules may have any name, which modules.json gives
LOCAL_SIDE_FILES = (*SIDE_FILES, "*/config.json", "*/sentence_*_config.json")


def choose_format(
    names: Sequence[str], where: str, *, allow_pickle: bool
) -> "tuple[Format, tuple[str, ...]]":
    """Choose the file format to read, by file names alone.

    Returns:
        the format and the files it reads.

    Raises:
        SourceError: no known format is there.
        UsageError: the only one runs code and ``allow_pickle`` is not given.
    """
    found = [(each, files) for each in all_formats() if (files := each.find(names))]
    safe = [(each, files) for each, files in found if allow_pickle or not each.executable]
    if safe:
        return safe[0]
    if found:
        raise UsageError(
            f"{where} holds its weights only as {', '.join(found[0][1])}, a pickle, which can "
            "run code",
            "--allow-pickle reads the tensors that it describes, and runs nothing",
        )
    raise SourceError(f"{where} holds no weights in a known format", "see `zoo doctor`")


def files_to_download(names: Sequence[str], where: str, *, allow_pickle: bool) -> list[str]:
    """Choose what to download of a repository: one format's weights and the side files."""
    _, weights = choose_format(names, where, allow_pickle=allow_pickle)
    return [*weights, *config_files(names), *matching(names, SIDE_FILES)]


def config_files(names: Sequence[str]) -> list[str]:
    """Choose what may be the configuration: ``config.json``, else what families have instead."""
    if CONFIG in names:
        return [CONFIG]
    return matching(names, [p for family in all_families().values() for p in family.config_files])


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the file names that match any of several glob patterns."""
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
