"""Download and verification of files of a Hub repository."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import SourceError, VerificationError
from zoo.hub.files import hash_download, map_os_errors
from zoo.io.limits import MAX_HUB_FILE_BYTES
from zoo.io.local import require_local
from zoo.io.locks import file_lock
from zoo.io.progress import Advance, progress
from zoo.io.sizes import check_size

if TYPE_CHECKING:
    from zoo.hub.lockfile import Lock
    from zoo.hub.metadata import CommitMetadata, HubFile
    from zoo.io.digests.files import FileDigest

LOG = logging.getLogger("zoo")
DEFAULT_BRANCH = "main"
NO_ROOM = "make room, or set $HF_HUB_CACHE and $ZOO_HOME to another place"


@dataclass(frozen=True)
class DownloadResult:
    """Files of a repository in the local cache."""

    # directory with the files; it may have more files of the repository than were requested
    directory: Path
    repo: str
    revision: str  # commit hash
    files: "Mapping[str, FileDigest]"  # file name -> digest, of every requested file
    listing: tuple[str, ...]  # names of all files of the commit, requested or not


def fetch(
    repo: str,
    *,
    revision: str | None = None,
    select: Callable[[Sequence[str]], Sequence[str]],
    select_more: Callable[[Path, Sequence[str]], Sequence[str]] | None = None,
    optional: Mapping[str, int] | None = None,
    offline: bool = False,
    lock: "Lock | None" = None,
) -> DownloadResult:
    """Return files of a Hub repository; download those that are not in the cache.

    For a commit whose list of files was recorded, no connection is opened if its files are in the
    cache. ``optional`` has the most bytes of files that are left out if the commit has none or a
    larger one, or if they are not in the cache and no connection may be opened.
    """
    from huggingface_hub import constants

    from zoo.hub.listing import check_names, is_offline

    branch = DEFAULT_BRANCH if revision is None else revision
    check_names(repo, branch)
    require_local(constants.HF_HUB_CACHE, "output")
    root = Path(constants.HF_HUB_CACHE)
    with map_os_errors(root, NO_ROOM):
        locked_revision = lock.pin(repo, revision) if lock else None
        checkout = _open(repo, locked_revision or branch, root, offline or is_offline(), lock)
        all_names = sorted(checkout.listing)
        names = list(dict.fromkeys(select(all_names)))
        for name, max_bytes in (optional or {}).items():
            if name not in names and checkout.can_obtain(name, max_bytes):
                names.append(name)
        files = checkout.obtain_all(names)
        if select_more is not None:
            further_names = dict.fromkeys(select_more(checkout.directory, all_names))
            files |= checkout.obtain_all([name for name in further_names if name not in files])
        if lock:
            lock.add(repo, branch, checkout.commit, files)
    return DownloadResult(checkout.directory, repo, checkout.commit, files, tuple(all_names))


def _open(repo: str, revision: str, root: Path, offline: bool, lock: "Lock | None") -> "_Checkout":
    """Resolve a revision to a commit and its list of files, by a request if necessary."""
    from zoo.hub import listing
    from zoo.hub.metadata import load_metadata

    if offline:
        snapshot = listing.cached_snapshot(repo, revision)
        if snapshot is None:
            raise _not_cached_error(repo, revision)
        metadata = load_metadata(repo, snapshot.name)
        files = metadata.listing
        return _Checkout(
            metadata, listing.cached_files(snapshot) if files is None else files, root, True, lock
        )
    if listing.COMMIT.fullmatch(revision):
        metadata = load_metadata(repo, revision)
        if metadata.listing is not None:
            return _Checkout(metadata, metadata.listing, root, False, lock)
    commit, files = listing.list_files(repo, revision)
    listing.record_revision(repo, revision, commit)
    metadata = load_metadata(repo, commit)
    metadata.listing = files
    return _Checkout(metadata, files, root, False, lock)


def _not_cached_error(repo: str, subject: str) -> SourceError:
    from zoo.hub.unreachable import Unreachable

    return Unreachable(
        f"{repo} {subject} is not in the cache", f"run `zoo fetch {repo}` once while online"
    )


@dataclass(frozen=True)
class _Checkout:
    """One commit, and the files of it that are requested."""

    metadata: "CommitMetadata"  # recorded list of files and digests of the commit
    # all files of the commit; those in the cache if the list was never requested
    listing: "Mapping[str, HubFile]"
    root: Path  # directory of the cache
    offline: bool  # open no connection
    lock: "Lock | None"  # lock file that the files are compared with, or ``None``

    @property
    def repo(self) -> str:
        return self.metadata.repo

    @property
    def commit(self) -> str:
        return self.metadata.revision

    @property
    def directory(self) -> Path:
        """Directory of the commit; the whole cache if no file of it was requested."""
        from zoo.hub.listing import cached_snapshot

        return cached_snapshot(self.repo, self.commit) or self.root

    def can_obtain(self, name: str, max_bytes: int) -> bool:
        """Return whether the commit has a file of this size, here or where it may be requested."""
        remote = self.listing.get(name)
        if remote is None or remote.bytes > max_bytes:
            return False
        return not self.offline or self._path(name) is not None

    def obtain_all(self, names: Sequence[str]) -> "dict[str, FileDigest]":
        """Download and verify files; return their digests."""
        for name in names:
            if name not in self.listing:
                raise SourceError(f"{self.repo} has no file {name} at {self.commit[:12]}")
            check_size(
                f"{self.repo} {name}", "length", self.listing[name].bytes, MAX_HUB_FILE_BYTES
            )
        total = sum(self.listing[name].bytes for name in names if self._path(name) is None)
        with progress(f"fetching {self.repo}", total, bytes_=True) as advance:
            digests = {}
            for name in names:
                digest = self._cached_digest(name)
                if digest is None and self.offline:
                    if self._path(name) is None:
                        raise _not_cached_error(self.repo, name)
                    raise self._damaged(name)
                digest = digest or self._download(name, advance)
                if self.lock:
                    self.lock.check(self.repo, name, digest)
                self.metadata.add(name, digest)
                digests[name] = digest
        return digests

    def _download(self, name: str, advance: Advance) -> "FileDigest":
        """Download a file, or wait for another process that downloads it."""
        from zoo.hub.download import download
        from zoo.hub.errors import HubRequest
        from zoo.hub.metadata import repo_folder

        request = HubRequest(self.repo, self.commit, name)
        remote = self.listing[name]
        with file_lock(repo_folder(self.repo) / "download.lock"):
            digest = self._cached_digest(name)
            if digest is None and self._path(name) is None:
                digest = download(request, remote, advance) or self._cached_digest(name)
            if digest is None:
                LOG.info("%s %s in the cache is damaged; downloading it again", self.repo, name)
                # A damaged file that is not a link is removed: huggingface_hub replaces only links.
                path = self._path(name)
                if path is not None and not path.is_symlink():
                    path.unlink()
                digest = download(request, remote, advance, replace=True)
                digest = digest or self._cached_digest(name)
        if digest is None:
            raise self._damaged(name)
        return digest

    def _cached_digest(self, name: str) -> "FileDigest | None":
        """Return the digest of a file in the cache; ``None`` if it is missing or damaged.

        It is compared with the recorded digest, else with the digest that the Hub publishes.
        """
        path = self._path(name)
        if path is None:
            return None
        record = self.metadata.files.get(name)
        digest, is_as_published = hash_download(path, "" if record else self.listing[name].etag)
        if record:
            is_as_recorded = (digest.bytes, digest.blake3) == (record.bytes, record.blake3)
            return record if is_as_recorded else None
        return digest if is_as_published else None

    def _path(self, name: str) -> Path | None:
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(self.repo, name, revision=self.commit)
        return Path(path) if isinstance(path, str) else None

    def _damaged(self, name: str) -> VerificationError:
        return VerificationError(
            f"{self.repo} {name} in the cache is damaged: it does not match its digest",
            f"run `zoo fetch {self.repo}` while online to download it again",
        )
