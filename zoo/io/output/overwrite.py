"""Checks of an output directory before it is replaced.

``--force`` replaces an empty directory, or one with only files that `zoo` wrote: a converted
model, an export, a corpus. Its manifest lists its files, so that other files are detected.
Everything else is refused, including training runs, which are expensive to repeat.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from zoo.errors import UsageError
from zoo.io.output.staging import remove_stale_staging

HUB_RECORD = ".zoo.json"  # lists the files of a directory in the Hub's layout
_RUN = "run.json"
_ALSO_WRITTEN: Mapping[str, frozenset[str]] = {
    # manifest -> files written with it that it does not list
    "zoo.json": frozenset(),
    "corpus.json": frozenset({"tokenizer.json"}),
    HUB_RECORD: frozenset(),
}
_REMEDY = "--force replaces only what zoo wrote: move it away, or give another -o"


class HubRecord(msgspec.Struct, kw_only=True):
    """Contents of ``.zoo.json``, the manifest of a directory in the Hub's layout.

    Attributes:
        zoo: version of the format.
        created_by: name of the distribution -> version.
        files: file name -> digest, of every other file of the directory.
    """

    zoo: int
    created_by: dict[str, str]
    files: Mapping[str, Any]


class _Files(msgspec.Struct):
    files: dict[str, Any] = {}


class _AnyManifest(msgspec.Struct):
    """Keys of any manifest that list files; other keys are ignored."""

    zoo: int
    created_by: str | dict[str, str]
    files: dict[str, Any] = {}
    splits: dict[str, _Files] = {}

    def names(self) -> set[str]:
        return {*self.files, *(name for split in self.splits.values() for name in split.files)}


def check_target(
    target: Path, *, force: bool, sources: Iterable[Path] = (), managed: bool = False
) -> None:
    """Raise an error if an output directory must not be replaced.

    Stale staging directories beside it are removed first, see ``remove_stale_staging``.

    Args:
        target: directory to write.
        force: accept an existing directory if it is empty or `zoo` wrote all of its files.
        sources: inputs of the command, which must not be replaced.
        managed: accept any contents, for directories that only `zoo` writes, such as its cache.

    Raises:
        UsageError: the directory exists and must not be replaced.
    """
    target = Path(os.path.abspath(target))
    remove_stale_staging(target.parent)
    if not os.path.lexists(target):
        return
    if target.is_symlink():
        raise UsageError(f"{target} is a symbolic link", "give the directory itself as -o")
    if not target.is_dir():
        raise UsageError(f"{target} exists and is not a directory", "give another -o")
    _check_not_in_use(target, sources)
    if not force:
        raise UsageError(f"{target} exists", "give --force to replace it, or another -o")
    if not managed:
        _check_written_by_zoo(target)


def _check_not_in_use(target: Path, sources: Iterable[Path]) -> None:
    resolved = target.resolve()
    in_use = {str(path): path for path in sources} | {"the working directory": Path.cwd()}
    for name, path in in_use.items():
        if path.resolve().is_relative_to(resolved):
            raise UsageError(f"{target} is or holds {name}, which is in use", "give another -o")


def _check_written_by_zoo(target: Path) -> None:
    present = sorted(_files(target))
    if not present:
        return
    if _RUN in present:
        raise UsageError(f"{target} is a training run", _REMEDY)
    written = _written_files(target)
    if written is None:
        raise UsageError(f"{target} is not from zoo: it holds {_listed(present)}", _REMEDY)
    foreign = [name for name in present if name not in written]
    if foreign:
        raise UsageError(f"{target} holds {_listed(foreign)}, which zoo did not write", _REMEDY)


def _files(root: Path) -> Iterator[str]:
    """Yield the files below a directory, including links to directories."""
    for folder, directories, names in os.walk(root):
        links = [name for name in directories if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            yield Path(folder, name).relative_to(root).as_posix()


def _written_files(target: Path) -> set[str] | None:
    """Return the files that a directory's manifest lists; ``None`` if it has no manifest."""
    for name, also in _ALSO_WRITTEN.items():
        try:
            manifest = msgspec.json.decode((target / name).read_bytes(), type=_AnyManifest)
        except (OSError, ValueError, RecursionError):  # missing, or written by another program
            continue
        return {name, *also, *manifest.names()}
    return None


def _listed(names: list[str]) -> str:
    suffix = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + suffix
