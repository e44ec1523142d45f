"""Copies of remote files in ``$ZOO_HOME/downloads``, with their digests.

A file is downloaded once for each version that its host names. A folder or pattern becomes a
snapshot: a folder of links to the copies, whose name is a digest of the listing. Whatever changes
at the host, a command therefore reads the same files from its beginning to its end. What no process
reads is removed once there is too much, see ``zoo.io.remote.eviction``.
"""

import contextlib
import fnmatch
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from zoo.errors import SourceError, UsageError, name_place
from zoo.io.cached_directories import use_cached
from zoo.io.digests.files import FileDigest, hash_file
from zoo.io.digests.verified import file_blake3
from zoo.io.json import JsonStruct, encode_json
from zoo.io.locks import directory_lock, file_lock
from zoo.io.output.atomic import atomic_directory, atomic_write
from zoo.io.output.full_disks import writing
from zoo.io.output.staging import staged_path
from zoo.io.paths import home, safe_join
from zoo.io.progress import Advance, progress
from zoo.io.remote import client
from zoo.io.remote.client import RemoteFile
from zoo.io.remote.eviction import RECORD, evict_downloads, max_download_bytes
from zoo.io.urls import RemoteUrl, parse_url

DOWNLOADS = "downloads"
_COPIES = "files"
# URL -> its snapshot: a command reads one version.
_snapshots: dict[tuple[str, str], Path] = {}


class CopyRecord(JsonStruct):
    """The record of a copy: what it was downloaded from, and its digest."""

    url: str
    version: str
    file: FileDigest


def fetch(path: str | os.PathLike[str]) -> Path:
    """Return the local path of a path or URL; download what a URL names.

    A folder is fetched with all files below it. A pattern stays a pattern, of the files that
    matched it.

    Raises:
        SourceError: the file does not exist, cannot be read, or a package is not installed.
        VerificationError: a file changed while it was downloaded.
    """
    url = parse_url(path)
    if url is None:
        return Path(path)
    key = (str(home()), url.address)
    if key not in _snapshots:
        _snapshots[key] = _make_snapshot(url, list_files(url))
    return _snapshots[key] / url.key.rstrip("/")


def forget_snapshots() -> None:
    """Let the next function or command read URLs again, which may have changed."""
    _snapshots.clear()


def fetch_text(text: str) -> str:
    """Return the local path of a text; one without a URL stays as it is."""
    return text if parse_url(text) is None else str(fetch(text))


def list_files(url: RemoteUrl) -> list[RemoteFile]:
    """Return the files that a URL names: one, those of a folder, or those that match a pattern.

    Raises:
        SourceError: there are none.
    """
    if url.is_pattern:
        files = _matches(url)
        if not files:
            raise SourceError(f"{url} matches nothing", "give a file, a folder or a pattern")
        return files
    if not url.key.endswith("/") and url.key:
        file = client.find(url)
        if file is not None:
            return [file]
    if url.is_web:
        raise SourceError(f"{url} does not exist", "check the name")
    files = client.find_all(url)
    if not files:
        raise SourceError(f"{url} does not exist", "give a file, a folder or a pattern")
    return files


def _matches(pattern: RemoteUrl) -> list[RemoteFile]:
    """Return the files that a pattern matches, or that are in a folder that it matches."""
    base = pattern.fixed_part
    depth = len(base.key.split("/")) if base.key else 0
    pattern_parts = pattern.key.rstrip("/").split("/")[depth:]
    matches_hidden = "/." in f"/{pattern.key}"
    files = []
    for file in client.find_all(base):
        parts = file.url.key.split("/")[depth:]
        is_hidden = any(part.startswith(".") for part in parts)
        if _matches_parts(parts, pattern_parts) and (matches_hidden or not is_hidden):
            files.append(file)
    return files


def _matches_parts(parts: Sequence[str], pattern_parts: Sequence[str]) -> bool:
    """Return whether the parts of a path, or of a folder of it, match those of a pattern."""
    if not pattern_parts:
        return True
    if pattern_parts[0] == "**":  # It stands for any number of folders.
        if _matches_parts(parts, pattern_parts[1:]):
            return True
        return bool(parts) and _matches_parts(parts[1:], pattern_parts)
    if not parts or not fnmatch.fnmatchcase(parts[0], pattern_parts[0]):
        return False
    return _matches_parts(parts[1:], pattern_parts[1:])


def _make_snapshot(url: RemoteUrl, files: Sequence[RemoteFile]) -> Path:
    """Return a folder with copies of files at their paths, which this process keeps."""
    _require_tree(url, files)
    max_bytes = max_download_bytes()
    folder = home() / DOWNLOADS
    copies = folder / _COPIES
    with writing(copies):
        copies.mkdir(parents=True, exist_ok=True)
    # Other processes remove nothing while this one fetches.
    with directory_lock(copies, shared=True):
        root = _link_copies(url, files, folder)
        use_cached(root)
    with contextlib.suppress(OSError):  # A shared home may be read-only.
        os.utime(root)
    evict_downloads(folder, copies, max_bytes)
    return root


def _link_copies(url: RemoteUrl, files: Sequence[RemoteFile], folder: Path) -> Path:
    total = sum(file.bytes or 0 for file in files)
    versions = [(file.url.key, url.query, file.bytes, file.version) for file in files]
    root = folder / f"{url.scheme}-{url.host}" / _digest(versions)
    name_place(f"{root}/", f"{url.scheme}://{url.host}/")
    with progress(f"fetching {url}", total, bytes_=True) as advance:
        copies = [_copy_of(folder, file, advance) for file in files]
    if all(file.version for file in files) and root.is_dir() and _has_links(root, files, copies):
        return root
    with (
        file_lock(root.with_name(f"{root.name}.lock")),
        atomic_directory(root, force=True, managed=True) as staging,
    ):
        for file, copy in zip(files, copies, strict=True):
            link = safe_join(staging, file.url.key, str(url))
            link.parent.mkdir(parents=True, exist_ok=True)
            _link(copy, link)
    return root


def _require_tree(url: RemoteUrl, files: Iterable[RemoteFile]) -> None:
    """Check that no object has the name of a folder of others, as stores allow."""
    keys = {file.url.key for file in files}
    for key in keys:
        folder = key.rpartition("/")[0]
        while folder:
            if folder in keys:
                raise UsageError(
                    f"{url}: {folder} is an object and a folder of others", "rename one of them"
                )
            folder = folder.rpartition("/")[0]


def _has_links(root: Path, files: Sequence[RemoteFile], copies: Sequence[Path]) -> bool:
    """Return whether a snapshot still has the contents of the copies."""
    for file, copy in zip(files, copies, strict=True):
        link = safe_join(root, file.url.key, str(file.url))
        if not link.is_file():
            return False
        if not link.samefile(copy) and file_blake3(link) != file_blake3(copy):
            return False
    return True


def _copy_of(folder: Path, file: RemoteFile, advance: Advance) -> Path:
    """Return the copy of a version of a file, which is downloaded if there is none."""
    key = _digest([file.url.address, file.bytes, file.version])
    path = folder / _COPIES / key
    with writing(path), file_lock(path.with_name(f"{key}.lock")):
        if file.version and _is_intact(path):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with staged_path(path) as staging:
            with staging.open("x+b") as target:
                client.download(file, target, advance)
                target.flush()
                os.fsync(target.fileno())
            if file.modified is not None:
                os.utime(staging, (file.modified, file.modified))
            record = CopyRecord(url=str(file.url), version=file.version, file=hash_file(staging))
            os.replace(staging, path)
            atomic_write(Path(f"{path}{RECORD}"), encode_json(record))
    return path


def _is_intact(path: Path) -> bool:
    """Return whether a copy is complete, and has the digest of its record."""
    try:
        record = msgspec.json.decode(Path(f"{path}{RECORD}").read_bytes(), type=CopyRecord)
        return path.stat().st_size == record.file.bytes and file_blake3(path) == record.file.blake3
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False


def _link(copy: Path, link: Path) -> None:
    try:
        os.link(copy, link)
    except OSError:  # The file system has no hard links.
        shutil.copy2(copy, link)


def _digest(value: object) -> str:
    from blake3 import blake3  # imported late: `zoo --help` does without it

    return blake3(msgspec.json.encode(value)).hexdigest(16)
