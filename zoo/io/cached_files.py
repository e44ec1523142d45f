"""Files that are computed from others and stored in a cache: written once, then read again."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from zoo.errors import UsageError, ZooError
from zoo.io.cached_directories import touch_and_evict, use_cached
from zoo.io.digests.files import FileDigest, check_files, check_strays, hash_file
from zoo.io.digests.self_digest import NO_DIGEST, add_digest, read_record
from zoo.io.digests.verified import file_blake3
from zoo.io.json import JsonStruct, encode_json
from zoo.io.locks import file_lock
from zoo.io.output.atomic import atomic_directory
from zoo.io.paths import home

LOG = logging.getLogger("zoo")
MANIFEST = "files.json"

Content = TypeVar("Content")
Read = Callable[[Path], Content]


class CachedFilesRecord(JsonStruct):
    """``files.json``."""

    files: dict[str, FileDigest]  # digests of the files, by name
    digest: str  # BLAKE3 of this file, see ``zoo.io.digests.self_digest``


def cached_files(
    kind: str, key: str, write: Callable[[Path], None], read: Read[Content]
) -> Content | None:
    """Return the content of a directory of the cache, written by the first process that needs it.

    Other processes wait for it. Damaged files are replaced.

    Args:
        kind: directory of ``$ZOO_HOME`` that holds the directories of a kind.
        key: name of the directory, a digest of all that the files depend on.
        write: writes the files to an empty directory.
        read: returns the content of a directory whose files are those that were written.

    Returns:
        the content; ``None`` if the cache cannot be written, which is said in a warning.
    """
    target = home() / kind / key
    content = _read(target, read)
    if content is not None:  # No lock was needed: the directory may be read-only.
        return content
    try:
        with file_lock(target.with_suffix(".lock")):
            content = _read(target, read)
            if content is None:
                LOG.info("building %s", target)
                _write(target, write)
                content = _read(target, read)
    except (OSError, UsageError) as error:
        LOG.warning("%s are built again at every start: %s", kind, error)
    return content


def _write(target: Path, write: Callable[[Path], None]) -> None:
    """Write the files and their record to a directory."""
    with atomic_directory(target, force=True, managed=True) as staging:
        write(staging)
        files = {path.name: hash_file(path) for path in sorted(staging.iterdir())}
        record = CachedFilesRecord(files=files, digest=NO_DIGEST)
        (staging / MANIFEST).write_bytes(add_digest(encode_json(record)))


def _read(target: Path, read: Read[Content]) -> Content | None:
    """Return the content of a directory; ``None`` if it is missing or damaged."""
    hint = "it is built again"
    try:
        if not use_cached(target):
            return None
        files = read_record(target / MANIFEST, CachedFilesRecord, hint=hint).files
        check_files(target, files, MANIFEST, hint=hint, digest=file_blake3)
        check_strays(target, files, MANIFEST, hint=hint)
        content = read(target)
    except (ZooError, OSError, ValueError) as error:
        LOG.warning("%s", error)
        return None
    touch_and_evict(target)
    return content
