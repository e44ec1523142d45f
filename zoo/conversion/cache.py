"""Resolution of a model reference to a checkpoint, which is converted on first use."""

import logging
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import SourceError, UsageError, ZooError
from zoo.hub.reference import resolve
from zoo.hub.source import locate_or_download
from zoo.io.cached_directories import touch_and_evict, use_cached
from zoo.io.remote.cache import fetch
from zoo.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zoo.checkpoint import Checkpoint
    from zoo.hub.source import CheckpointDir

LOG = logging.getLogger("zoo")


def resolve_checkpoint(
    text: str,
    *,
    head: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    lock: Path | None = None,
) -> "Checkpoint":
    """Return the checkpoint of a model reference, converted into the store if necessary.

    An existing conversion is reused. A local directory is converted into ``$ZOO_HOME/cache``,
    under a name with a digest of its files; ``zoo.io.cached_directories`` limits that cache. An
    export in a Hub repository without weights is copied into the store.

    Args:
        text: model reference.
        head: name of the head; by default the checkpoint's.
        revision: branch, tag or commit on the Hub.
        offline: open no connection.
        lock: lock file; by default ``./zoo.lock`` if it exists.

    Raises:
        ZooError: see ``resolve``, ``locate_or_download`` and ``convert``.
    """
    from zoo.checkpoint import is_checkpoint, load_checkpoint

    reference = resolve(text, revision=revision)
    if reference.path is not None and is_checkpoint(reference.path):
        checkpoint = load_checkpoint(reference.path)
        if checkpoint.is_adapter:
            return with_its_base(checkpoint, head=head, offline=offline, lock=lock)
        if head in (None, checkpoint.head_name):
            if reference.kind == "path":
                return checkpoint
            _warn_of_unread_parts(text, checkpoint, None)
            return _check_lock(checkpoint, lock, text)
    source = None
    target = reference.stored
    if reference.path is not None:
        source = _with_digests(locate_or_download(reference, offline=offline, lock=lock))
        target = _cache_directory(source)
    if head is not None:
        target = target.with_name(f"{target.name}+{head}")
    # Another process may evict a conversion in the cache before it is locked.
    while not (is_checkpoint(target) and (reference.path is None or use_cached(target))):
        # Only needed here: a checkpoint or an export is opened without it.
        from zoo.conversion.convert import convert

        source = source or locate_or_download(
            reference, offline=offline, lock=lock, exports=head is None
        )
        log_start = partial(LOG.info, "converting %s into %s", text, target)
        try:
            if source.is_export:
                _copy_export(source, target)
            else:
                convert(source, target, head=head, starting=log_start)
        except UsageError:
            # If the target is there now, another process has converted it.
            if not is_checkpoint(target):
                raise
    if reference.path is not None:
        touch_and_evict(target)
    checkpoint = load_checkpoint(target)
    _warn_of_unread_parts(text, checkpoint, source)
    return _check_lock(checkpoint, lock, text)


def _warn_of_unread_parts(
    text: str, checkpoint: "Checkpoint", source: "CheckpointDir | None"
) -> None:
    """Say which parts of a model are in its directory, and are not in the conversion."""
    from zoo.checkpoint.records import MappingRecord
    from zoo.conversion.unread_files import find_unread_files, unread_parts

    unread: Mapping[str, str] = checkpoint.read_part("account", MappingRecord).unread_files
    if source is not None and source.repo is None:
        # Files may have been added since the conversion.
        unread = find_unread_files(source.all_names(), source.digests)
    for name in unread_parts(unread):
        LOG.warning("warning: %s: %s is not read: %s", text, name, unread[name])


def _copy_export(source: "CheckpointDir", target: Path) -> None:
    """Copy an export from the cache of downloads, compared with its manifest."""
    from zoo.checkpoint import load_checkpoint
    from zoo.checkpoint.digests import MODEL_CARD
    from zoo.checkpoint.records import MANIFEST
    from zoo.io.digests.files import check_files
    from zoo.io.output.atomic import atomic_directory
    from zoo.io.output.overwrite import check_target
    from zoo.io.paths import safe_join

    check_target(target, force=False)
    LOG.info("copying the export %s into %s", source.repo, target)
    with atomic_directory(target) as staging:
        for name in source.digests:
            copy = safe_join(staging, name, MANIFEST)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source.directory / name, copy)
        digests = dict(load_checkpoint(staging).manifest.files)
        # ``zoo push`` writes the name of the repository into the card, which may be edited.
        digests.pop(MODEL_CARD, None)
        hint = f"the export in {source.repo} is not complete: export and push it again"
        check_files(staging, digests, MANIFEST, hint=hint)


def with_its_base(
    adapter: "Checkpoint", *, head: str | None = None, offline: bool, lock: Path | None = None
) -> "Checkpoint":
    """Return an adapter with the model that it changes, which its record names."""
    from zoo.adapted_models.checkpoint import AdaptedCheckpoint, adapter_record

    if head not in (None, adapter.head_name):
        raise UsageError(
            f"{adapter.path} is an adapter with the head {adapter.head_name}", "leave --head out"
        )
    hint = f"give its base, and --adapter {adapter.path}"
    reference = adapter_record(adapter).base.reference
    model = resolve_base(adapter.path, reference, hint, offline=offline, lock=lock)
    return AdaptedCheckpoint.from_adapters(model, [adapter])


def resolve_base(adapter: Path, reference: str, hint: str, **options: Any) -> "Checkpoint":
    """Return the checkpoint that an adapter names as its base; see ``resolve_checkpoint``."""
    try:
        return resolve_checkpoint(reference, **options)
    except (UsageError, SourceError) as error:
        raise SourceError(
            f"{adapter} is an adapter of {reference}, which is not available: {error.what}", hint
        ) from error


def base_problem(adapter: "Checkpoint") -> str | None:
    """Return why the base of an adapter cannot be used as it is here, or ``None``."""
    from zoo.adapted_models.checkpoint import adapter_record, require_base
    from zoo.checkpoint import is_checkpoint, load_checkpoint

    try:
        reference = resolve(adapter_record(adapter).base.reference)
        path = reference.path or reference.stored
        if reference.path is not None and not is_checkpoint(path):
            # The base is in another layout, and was converted into the cache.
            source = locate_or_download(reference, offline=True)
            path = _cache_directory(_with_digests(source))
        if not is_checkpoint(path):
            return f"{reference.text} is not converted yet"
        require_base(adapter, load_checkpoint(path))
    except ZooError as error:
        return error.what
    return None


def resolve_adapted(
    text: str | None,
    adapters: "Sequence[Path | str]",
    *,
    head: str | None = None,
    global_tokens: str | None = None,
    **options: Any,
) -> "Checkpoint":
    """Return the checkpoint of a reference with adapters; see ``resolve_checkpoint``.

    Without a reference, it is the base that the first adapter names. ``global_tokens`` replaces its
    tokens with global attention, see ``Checkpoint.with_global_tokens``.
    """
    if not adapters:
        assert text is not None, "a model has a reference"
        return resolve_checkpoint(text, head=head, **options).with_global_tokens(global_tokens)
    from zoo.adapted_models.checkpoint import AdaptedCheckpoint, adapter_record, load_adapter

    checkpoints = [load_adapter(fetch(path)) for path in adapters]
    first_adapter = checkpoints[0]
    last_adapter = checkpoints[-1]
    if head not in (None, last_adapter.head_name):
        raise UsageError(
            f"{last_adapter.path} is an adapter with the head {last_adapter.head_name}",
            "leave --head out",
        )
    if text is None:
        reference = adapter_record(first_adapter).base.reference
        hint = "give the model that it was trained from as --base REF"
        base = resolve_base(first_adapter.path, reference, hint, **options)
    else:
        base = resolve_checkpoint(text, **options)
    checkpoint = AdaptedCheckpoint.from_adapters(base, checkpoints)
    return checkpoint.with_global_tokens(global_tokens)


def _check_lock(checkpoint: "Checkpoint", path: Path | None, text: str) -> "Checkpoint":
    """Check a model of the store against the lock file, and return it with its reference."""
    from zoo.checkpoint.records import MANIFEST
    from zoo.hub.lockfile import Lock
    from zoo.io.digests.files import hash_file

    lock = Lock.open(path)
    source = checkpoint.manifest.source
    if checkpoint.is_export:
        # The manifest of an export has the digests of all files.
        repo = resolve(text.partition("@")[0], stored=False).repo
        if lock is not None and repo is not None:
            lock.check(repo, MANIFEST, hash_file(checkpoint.path / MANIFEST))
    elif lock is not None and source is not None and source.repo is not None:
        lock.check_conversion(checkpoint.path, source.repo, source.revision, source.files)
    return replace(checkpoint, reference=text)


def _with_digests(source: "CheckpointDir") -> "CheckpointDir":
    """Return a directory restricted to the files that a conversion reads, with their digests.

    Digests come from the cache of ``zoo.io.digests.verified``.
    """
    from zoo.conversion.convert import convert
    from zoo.conversion.inspect import local_files
    from zoo.io.digests.files import FileDigest
    from zoo.io.digests.verified import file_blake3

    try:
        names = local_files(source)
    except ZooError:
        # This raises the error that describes the configuration.
        convert(source, None, dry_run=True)
        raise
    digests = {}
    for name in names:
        path = source.directory / name
        digests[name] = FileDigest(bytes=path.stat().st_size, blake3=file_blake3(path))
    return replace(source, digests=digests)


def _cache_directory(source: "CheckpointDir") -> Path:
    """Return the cache directory of a conversion, whose name has a digest of all files it reads."""
    from blake3 import blake3

    from zoo.io.paths import home

    path = Path(os.path.abspath(source.directory))
    key = blake3(f"{__version__}\0{path / (source.stem or '')}".encode())
    for name, digest in sorted(source.digests.items()):
        key.update(f"\0{name}\0{digest.blake3}".encode())
    name = path.name if source.file is None else Path(source.file).stem
    return home() / "cache" / f"{name}-{key.hexdigest(8)}"
