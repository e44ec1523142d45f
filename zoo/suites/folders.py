"""Folders of data sets in the places where their download scripts put them."""

from collections.abc import Sequence
from pathlib import Path

from zoo.errors import SourceError

# Where SentEval's data may be, from the folder that is named on: its parts of downstream tasks and
# of STS, and the folders above them.
SENTEVAL_PARENTS = (
    "",
    "downstream",
    "data/downstream",
    "STS",
    "downstream/STS",
    "data/downstream/STS",
)


def find_folder(data: Path, names: Sequence[str], parents: Sequence[str] = ("",)) -> Path:
    """Return the first folder that exists.

    Args:
        data: the folder that the user named.
        names: names of the folder that is searched for; paths of several parts as well.
        parents: where it may be in ``data``; empty for ``data`` itself.

    Raises:
        SourceError: there is none.
    """
    for parent in parents:
        for name in names:
            folder = data / parent / name
            if folder.is_dir():
                return folder
    raise SourceError(
        f"{data} has no folder {names[0]}", "give the folder that it was downloaded to"
    )


def require_files(paths: Sequence[Path]) -> Sequence[Path]:
    """Return files after checking that they exist; raises ``SourceError``."""
    for path in paths:
        if not path.is_file():
            raise SourceError(
                f"{path} does not exist",
                "give the directory that the files were downloaded to, with their published names",
            )
    return paths
