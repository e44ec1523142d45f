"""Model references: what the text after a command means.

In this order: a path, a name in the store, a name in the registry, a family (its default
checkpoint), a Hub repository ``organisation/name``. A path is that of a directory or, as TensorFlow
has it, what the files of a checkpoint in it begin with.
"""

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from zoo import registry
from zoo.errors import SourceError, UsageError, nearest
from zoo.paths import keep, store

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint, FileDigest
    from zoo.tokenization import SourceFiles

Kind = Literal["path", "store", "registry", "hub"]
LOG = logging.getLogger("zoo")
REPO = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Reference:
    """What a reference means, before anything is read or downloaded.

    Attributes:
        text: as it was typed.
        kind: where it was found.
        name: what a model made from it is called in the store.
        path: the directory, for kinds ``path`` and ``store``.
        stem: what the files of the weights begin with, if the path names them and not a directory.
        row: the registry's row, for kind ``registry``.
        repo: the Hub repository, for kinds ``registry`` and ``hub``.
        revision: the branch, tag or commit asked for, if any.
    """

    text: str
    kind: Kind
    name: str
    path: Path | None = None
    stem: str | None = None
    row: registry.Row | None = None
    repo: str | None = None
    revision: str | None = None

    @property
    def stored(self) -> Path:
        """The directory in the store for a model made from this."""
        return store() / (f"{self.name}@{self.revision}" if self.revision else self.name)


@dataclass(frozen=True)
class Source:
    """A directory with a checkpoint in some layout, local or downloaded.

    Attributes:
        directory: where the files are.
        reference: the text that led here.
        repo: the Hub repository, if any.
        revision: the commit it was resolved to.
        digests: digests that are already known, by file name.
        licence: as the registry states it.
        stem: see ``Reference``.
    """

    directory: Path
    reference: str
    repo: str | None = None
    revision: str | None = None
    digests: "dict[str, FileDigest]" = field(default_factory=dict)
    licence: str | None = None
    stem: str | None = None

    def names(self) -> list[str]:
        """Return the files to read: of a download, those that were asked for and checked."""
        if self.repo is not None:
            return sorted(self.digests)
        start = f"{self.stem}." if self.stem else ""
        found = (path.name for path in self.directory.iterdir() if path.is_file())
        return sorted(name for name in found if name.startswith(start))

    @property
    def files(self) -> "SourceFiles":
        """The side files."""
        from zoo.tokenization import SourceFiles

        return SourceFiles(self.directory, None if self.repo is None else self.names())


def resolve(text: str, *, revision: str | None = None, stored: bool = True) -> Reference:
    """Say what a reference means. Reads no model and opens no connection.

    Args:
        text: the reference.
        revision: a branch, tag or commit of the repository.
        stored: whether a model of that name in the store comes before the registry's.

    Raises:
        UsageError: nothing has that name; the nearest names are listed.
    """
    path = Path(text).expanduser()
    if text and path.is_dir():
        return Reference(text, "path", path.resolve().name, path=path, revision=revision)
    if (stem := _stem(path)) is not None:
        return Reference(text, "path", stem, path=path.parent, stem=stem, revision=revision)
    if not text or text.startswith((".", "/", "~")) or path.exists():
        what = "is not a directory" if path.exists() and text else "does not exist"
        raise UsageError(f"{text or 'an empty name'} {what}", "give the directory of a checkpoint")
    here = None
    if _is_stored(text) and revision is None:
        here = Reference(text, "store", text, path=store() / text)
    if here is not None and stored:
        return here
    row = registry.rows(plugins=False).get(text)
    default = _default_of_family(text) if row is None else None
    if default is not None:
        return resolve(default, revision=revision, stored=stored)
    row = row or registry.rows().get(text)
    if row is not None:
        wanted = revision or (None if row.revision == "main" else row.revision)
        return Reference(text, "registry", text, row=row, repo=row.repo, revision=wanted)
    if REPO.fullmatch(text):
        return Reference(text, "hub", text, repo=text, revision=revision)
    if here is not None:
        return here
    known = (*registry.rows(), *_families(), *stored_names())
    raise UsageError(
        f"no model is called {text!r}",
        nearest(text, known) or "see `zoo models`, or give a path or organisation/name",
    )


def _stem(path: Path) -> str | None:
    """Return what files begin with that a path names together: ``model.ckpt``, or its index."""
    stem = path.name.removesuffix(".index")
    return stem if (path.parent / f"{stem}.index").is_file() else None


def _is_stored(text: str) -> bool:
    inside = ".." not in Path(text).parts and text not in ("", ".")
    return inside and any((store() / text / f).is_file() for f in ("zoo.json", "config.json"))


def stored_names() -> list[str]:
    """Return the names in the store."""
    root = store()
    found = [*root.glob("*/zoo.json"), *root.glob("*/*/zoo.json")]
    return sorted(str(path.parent.relative_to(root)) for path in found)


def _families() -> Sequence[str]:
    from zoo.plugins import installed

    return tuple(installed())


def _default_of_family(text: str) -> str | None:
    from zoo.plugins import get_family, installed

    if text not in installed():
        return None
    try:
        family = get_family(text)
    except UsageError:  # a plugin of formats alone
        return None
    return family.default_checkpoint


def obtain(
    reference: Reference,
    *,
    offline: bool = False,
    lock: Path | None = None,
    allow_pickle: bool = False,
    tokenizer_alone: bool = False,
) -> Source:
    """Return the files of a reference, downloading what is needed and nothing else.

    Args:
        reference: what to obtain.
        offline: open no connection.
        lock: a lock file; by default ``./zoo.lock`` if it exists.
        allow_pickle: accept a format that runs code, if no other is there.
        tokenizer_alone: leave out weights and configuration.

    Raises:
        SourceError: offline, missing, gated, or the network failed.
        VerificationError: a digest does not match.
        UsageError: only a format that runs code is there, and ``allow_pickle`` is not given.
    """
    licence = reference.row.licence if reference.row else None
    if reference.path is not None:
        if reference.revision is not None:
            raise UsageError(f"--revision does not apply to the directory {reference.path}")
        return Source(reference.path, reference.text, stem=reference.stem)
    from zoo.convert.find import needed_files
    from zoo.hub import fetch
    from zoo.lock import Lock
    from zoo.tokenization import TOKENIZER_FILES

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
        return needed_files(names, repo, allow_pickle=allow_pickle)

    fetched = fetch(
        repo,
        revision=reference.revision,
        select=select,
        offline=offline,
        lock=Lock.open(lock),
    )
    return Source(
        fetched.directory,
        reference.text,
        repo=fetched.repo,
        revision=fetched.revision,
        digests=dict(fetched.files),
        licence=licence,
    )


def resolve_checkpoint(
    text: str,
    *,
    head: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    lock: Path | None = None,
) -> "Checkpoint":
    """Return a checkpoint in the zoo's layout, converting it into the store where needed.

    A conversion that was made before is used again. A directory in the Hub's layout is
    converted into ``$ZOO_HOME/cache``, under a name made from its files; see ``zoo.paths.keep``
    for how long it stays there.

    Raises:
        ZooError: whatever ``resolve``, ``obtain`` and ``convert`` raise.
    """
    from zoo.checkpoint import is_checkpoint, load_checkpoint
    from zoo.convert import convert

    reference = resolve(text, revision=revision)
    if reference.path is not None and is_checkpoint(reference.path):
        found = load_checkpoint(reference.path)
        if head in (None, found.head_name):
            return found if reference.kind == "path" else _as_locked(found, lock)
    target = _cached(reference) if reference.kind == "path" else reference.stored
    if head is not None:
        target = target.with_name(f"{target.name}+{head}")
    if not is_checkpoint(target):
        source = obtain(reference, offline=offline, lock=lock)
        says = partial(LOG.info, "converting %s into %s", text, target)
        try:
            convert(source, target, head=head, starting=says)
        except UsageError:
            if not is_checkpoint(target):  # else another process made it meanwhile
                raise
    if reference.kind == "path":
        keep(target)
    return _as_locked(load_checkpoint(target), lock)


def _as_locked(checkpoint: "Checkpoint", path: Path | None) -> "Checkpoint":
    """Return a model of the store, made from what the lock file says."""
    from zoo.lock import Lock

    lock, source = Lock.open(path), checkpoint.manifest.source
    if lock is not None and source is not None:
        lock.check_made(checkpoint.path, source)
    return checkpoint


def _cached(reference: Reference) -> Path:
    """Name a cache directory after the files of a local checkpoint: name, size and time."""
    from blake3 import blake3

    from zoo.paths import home

    path = Path(os.path.abspath(reference.path or "."))
    key = blake3(str(path / (reference.stem or "")).encode())
    for file in sorted(p for p in path.iterdir() if p.is_file()):
        stat = file.stat()
        key.update(f"\0{file.name}\0{stat.st_size}\0{stat.st_mtime_ns}".encode())
    return home() / "cache" / f"{path.name}-{key.hexdigest(8)}"
