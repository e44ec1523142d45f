"""The files of a reference: where they are, or from where they are downloaded."""

import logging
from collections.abc import Sequence
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
    """A directory with a checkpoint in some layout, local or downloaded.

    Attributes:
        directory: where the files are.
        reference: the text that led here.
        repo: the Hub repository, if any.
        revision: the commit it was resolved to.
        digests: digests that are already known, by file name. If there are any, no other file
            is read, and these must not have changed.
        row: the registry's row of the repository, if it has one.
        stem: see ``Reference``.
        model_type: what the user says of a configuration that does not say it.
    """

    directory: Path
    reference: str
    repo: str | None = None
    revision: str | None = None
    digests: "dict[str, FileDigest]" = field(default_factory=dict)
    row: "RegistryEntry | None" = None
    stem: str | None = None
    model_type: str | None = None

    def names(self) -> list[str]:
        """Return the files to read, of those that may be read."""
        start = f"{self.stem}." if self.stem else ""
        if self.restricted:
            names = list(self.digests)
        else:
            names = [path.name for path in self.directory.iterdir() if path.is_file()]
        return sorted(name for name in names if name.startswith(start))

    @cached_property
    def files(self) -> "SourceFiles":
        """The side files."""
        from zoo.tokenizers import SourceFiles

        return SourceFiles(self.directory, sorted(self.digests) if self.restricted else None)

    @property
    def restricted(self) -> bool:
        """Whether only those files may be read whose digests are known."""
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
    """Return the files of a reference, downloading what is needed and nothing else.

    Args:
        reference: what to obtain.
        offline: open no connection.
        lock: a lock file; by default ``./zoo.lock`` if it exists.
        allow_pickle: accept a format that runs code, if no other is there.
        tokenizer_alone: leave out weights and configuration.
        model_type: see ``Source``.

    Raises:
        SourceError: offline, missing, gated, or the network failed.
        VerificationError: a digest does not match.
        UsageError: only a format that runs code is there, and ``allow_pickle`` is not given.
    """
    if reference.path is not None:
        if reference.revision is not None:
            raise UsageError(f"--revision does not apply to the directory {reference.path}")
        return CheckpointDir(
            reference.path, reference.text, stem=reference.stem, model_type=model_type
        )
    from zoo.hub import fetch
    from zoo.hub.lockfile import Lock
    from zoo.hub.select_files import files_to_download
    from zoo.tokenizers import TOKENIZER_FILES

    repo = reference.repo
    if repo is None:
        where = f" from {reference.row.page}" if reference.row else ""
        raise SourceError(
            f"{reference.text} is not on the Hub", f"get its files{where} and give their directory"
        )

    expected = reference.row.files if reference.row else ()

    def select(names: Sequence[str]) -> Sequence[str]:
        if absent := ", ".join(name for name in expected if name not in names):
            LOG.info("%s no longer has %s, which the registry expects", repo, absent)
        if tokenizer_alone:
            return [name for name in names if name in TOKENIZER_FILES]
        return files_to_download(names, repo, allow_pickle=allow_pickle)

    fetched = fetch(
        repo,
        revision=reference.revision,
        select=select,
        offline=offline,
        lock=Lock.open(lock),
    )
    return CheckpointDir(
        fetched.directory,
        reference.text,
        repo=fetched.repo,
        revision=fetched.revision,
        digests=dict(fetched.files),
        row=reference.row,
        model_type=model_type,
    )
