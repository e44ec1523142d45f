"""Files of a model reference: a local directory, or a download."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import SourceError, UsageError
from zoo.hub.reference import Reference

if TYPE_CHECKING:
    from zoo.hub.registry import RegistryEntry
    from zoo.io.digests.files import FileDigest
    from zoo.tokenizers import SourceFiles

LOG = logging.getLogger("zoo")


@dataclass(frozen=True)
class CheckpointDir:
    """A directory with a checkpoint in any layout, local or downloaded."""

    directory: Path
    reference: str
    repo: str | None = None  # Hub repository, or ``None``
    revision: str | None = None  # commit hash, or ``None``
    # file name -> digest, if already computed. Then no other file is read, and these files must not
    # have changed
    digests: "dict[str, FileDigest]" = field(default_factory=dict)
    row: "RegistryEntry | None" = None  # registry entry of the repository, or ``None``
    stem: str | None = None  # common prefix of the files, see ``Reference``
    # ``model_type`` given by the user, for a configuration that has none
    model_type: str | None = None

    def names(self) -> list[str]:
        """Return the names of the files that may be read and begin with ``stem``."""
        start = f"{self.stem}." if self.stem else ""
        if self.restricted:
            names = list(self.digests)
        else:
            names = [path.name for path in self.directory.iterdir() if path.is_file()]
        return sorted(name for name in names if name.startswith(start))

    def graphs(self) -> list[str]:
        """Return the names of ONNX graphs in subdirectories, which have no weights to read."""
        graphs = [] if self.restricted else self.directory.glob("*/*.onnx")
        return sorted(path.relative_to(self.directory).as_posix() for path in graphs)

    @cached_property
    def files(self) -> "SourceFiles":
        """Side files: tokenizer, pooling."""
        from zoo.tokenizers import SourceFiles

        return SourceFiles(self.directory, sorted(self.digests) if self.restricted else None)

    @property
    def restricted(self) -> bool:
        """``True`` if only files with a digest may be read."""
        return self.repo is not None or bool(self.digests)


def locate_or_download(
    reference: Reference,
    *,
    offline: bool = False,
    lock: Path | None = None,
    allow_pickle: bool = False,
    tokenizer_alone: bool = False,
    model_type: str | None = None,
) -> CheckpointDir:
    """Return the directory of a reference; download only files that are needed."""
    if reference.path is not None:
        if reference.revision is not None:
            raise UsageError(f"--revision does not apply to the directory {reference.path}")
        return CheckpointDir(
            reference.path, reference.text, stem=reference.stem, model_type=model_type
        )
    from zoo.hub import fetch
    from zoo.hub.lockfile import Lock
    from zoo.hub.retry import Unreachable

    if reference.repo is None:
        origin = f" from {reference.row.page}" if reference.row else ""
        raise SourceError(
            f"{reference.text} is not on the Hub", f"get its files{origin} and give their directory"
        )
    select = _selection(reference, allow_pickle=allow_pickle, tokenizer_alone=tokenizer_alone)
    revision, locked = reference.revision, Lock.open(lock)
    try:
        fetched = fetch(
            reference.repo, revision=revision, select=select, offline=offline, lock=locked
        )
    except Unreachable as error:
        raise type(error)(error.what, f"{error.hint}, {_without_the_hub(reference)}") from error
    return CheckpointDir(
        fetched.directory,
        reference.text,
        repo=fetched.repo,
        revision=fetched.revision,
        digests=dict(fetched.files),
        row=reference.row,
        model_type=model_type,
    )


def _without_the_hub(reference: Reference) -> str:
    """Return what helps where the Hub cannot be reached."""
    ways = "set $HF_ENDPOINT to a mirror, or give the directory of a checkpoint"
    if reference.row is None:
        return ways
    return f"{ways}; `zoo pretrain {reference.row.family}` trains a model of this family"


def _selection(
    reference: Reference, *, allow_pickle: bool, tokenizer_alone: bool
) -> Callable[[Sequence[str]], Sequence[str]]:
    """Return the function that selects the files to download from the names in a repository."""
    from zoo.hub.select_files import files_to_download, matching
    from zoo.tokenizers import TOKENIZER_FILES

    repo = str(reference.repo)
    expected = reference.row.files if reference.row else ()

    def select(names: Sequence[str]) -> Sequence[str]:
        if absent := ", ".join(name for name in expected if name not in names):
            LOG.info("%s no longer has %s, which the registry expects", repo, absent)
        if tokenizer_alone:
            return matching(names, TOKENIZER_FILES)
        return files_to_download(names, repo, allow_pickle=allow_pickle)

    return select
