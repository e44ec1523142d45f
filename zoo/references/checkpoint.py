"""A reference as a checkpoint in the zoo's layout, converted on first use."""

import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import UsageError
from zoo.paths import keep
from zoo.references.reference import Reference, resolve
from zoo.references.source import obtain

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

LOG = logging.getLogger("zoo")


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
