"""Selection of the files of a published checkpoint to download or to read, by their names."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from zoo.errors import SourceError, UsageError
from zoo.plugins import all_families, all_formats, built_in_formats
from zoo.tokenizers import POOLING_FILES, TOKENIZER_FILES

if TYPE_CHECKING:
    from zoo.io.tensors.formats import Format

CONFIG = "config.json"
SIDE_FILES = (*TOKENIZER_FILES, *POOLING_FILES)  # glob patterns
# modules.json names the directories of modules, which are only known after its download
LOCAL_SIDE_FILES = (*SIDE_FILES, "*/config.json", "*/sentence_*_config.json")


def choose_format(
    names: Sequence[str], source: str, *, allow_pickle: bool
) -> "tuple[Format, tuple[str, ...]]":
    """Choose the file format to read by file names.

    Formats of plugins are considered if no built-in one can be read, so that other plugins are not
    imported for ordinary checkpoints.

    Args:
        names: file names of the checkpoint.
        source: directory or repository, for messages.
        allow_pickle: accept pickle files if there are no others.

    Returns:
        the format, and the file names that it reads.

    Raises:
        SourceError: there are no weights in a known format.
        UsageError: the only format is a pickle, and ``allow_pickle`` is false.
    """
    for formats in (built_in_formats, all_formats):
        candidates = [(file_format, file_format.find(names)) for file_format in formats()]
        matches = [(file_format, files) for file_format, files in candidates if files]
        safe = [match for match in matches if allow_pickle or not match[0].executable]
        if safe:
            return safe[0]
    if matches:
        raise UsageError(
            f"{source} holds its weights only as {', '.join(matches[0][1])}, a pickle, which can "
            "run code",
            "--allow-pickle reads its tensors without running code",
        )
    raise SourceError(f"{source} holds no weights in a known format", "see `zoo doctor`")


def files_to_download(names: Sequence[str], source: str, *, allow_pickle: bool) -> list[str]:
    """Return the files of a repository to download: weights of one format, and side files."""
    _, weights = choose_format(names, source, allow_pickle=allow_pickle)
    return [*weights, *config_files(names), *matching(names, SIDE_FILES)]


def config_files(names: Sequence[str]) -> list[str]:
    """Return the possible configuration files: ``config.json``, else those of the families."""
    if CONFIG in names:
        return [CONFIG]
    return matching(names, [p for family in all_families().values() for p in family.config_files])


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the file names that match any of several glob patterns."""
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
