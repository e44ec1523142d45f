"""``fetch``: from the name of a repository to files that are here and were checked."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import SourceError, VerificationError
from zoo.hub.files import hash_file, map_os_errors
from zoo.io.limits import HUB_FILE_BYTES, check_limit
from zoo.io.locks import file_lock
from zoo.io.progress import Advance, progress

if TYPE_CHECKING:
    from zoo.hub.lockfile import Lock
    from zoo.hub.metadata import CommitMetadata, RemoteFile
    from zoo.io.digests.files import FileDigest

LOG = logging.getLogger("zoo")
DEFAULT_BRANCH = "main"
NO_ROOM = "make room, or set $HF_HUB_CACHE and $ZOO_HOME to another place"


@dataclass(frozen=True)
class DownloadResult:
    """Files of a repository, on this machine.

    Attributes:
        directory: holds the files by their names. It may hold more of the repository's files
            than were asked for.
        repo: the repository.
        revision: the commit.
        files: the digest of every file that was asked for.
    """

    directory: Path
    repo: str
    revision: str
    files: "Mapping[str, FileDigest]"


def fetch(
    repo: str,
    *,
    revision: str | None = None,
    select: Callable[[Sequence[str]], Sequence[str]],
    offline: bool = False,
    lock: "Lock | None" = None,
) -> DownloadResult:
    """Return files of a Hub repository, downloading those that are not here.

    A commit that was seen before, because it is given or locked, is not asked for again: if its
    files are here, no connection is opened.

    Args:
        repo: the repository, ``organisation/name``.
        revision: a branch, a tag or a commit; by default the locked commit, else ``main``.
        select: given the names of all files, returns those needed.
        offline: open no connection; ``$HF_HUB_OFFLINE=1`` does the same.
        lock: pins the commit and the digests; a repository that it does not know is added.

    Raises:
        UsageError: the name or the revision is malformed, contradicts the lock, or the cache
            cannot be written.
        SourceError: offline and not here; missing or gated; or the network failed.
        VerificationError: a file is not what the Hub, the lock or our record says.
    """
    from huggingface_hub import constants

    from zoo.hub.listing import check_names, is_offline

    branch = DEFAULT_BRANCH if revision is None else revision
    check_names(repo, branch)
    root = Path(constants.HF_HUB_CACHE)
    with map_os_errors(root, NO_ROOM):
        pinned = lock.pin(repo, revision) if lock else None
        checkout = _open(repo, pinned or branch, root, offline or is_offline(), lock)
        names = list(dict.fromkeys(select(sorted(checkout.listing))))
        files = checkout.obtain_all(names)
        if lock:
            lock.add(repo, branch, checkout.commit, files)
    return DownloadResult(checkout.directory, repo, checkout.commit, files)


def _open(repo: str, wanted: str, root: Path, offline: bool, lock: "Lock | None") -> "_Checkout":
    """Resolve a revision to a commit and its list of files, asking the Hub if need be."""
    from zoo.hub import listing
    from zoo.hub.metadata import load_metadata

    if offline:
        snapshot = listing.cached_snapshot(repo, wanted)
        if snapshot is None:
            raise _absent(repo, wanted)
        known = load_metadata(repo, snapshot.name)
        files = known.listing
        return _Checkout(
            known, listing.cached_files(snapshot) if files is None else files, root, True, lock
        )
    if listing.COMMIT.fullmatch(wanted):
        known = load_metadata(repo, wanted)
        if known.listing is not None:
            return _Checkout(known, known.listing, root, False, lock)
    commit, files = listing.list_files(repo, wanted)
    listing.record_revision(repo, wanted, commit)
    known = load_metadata(repo, commit)
    known.listing = files
    return _Checkout(known, files, root, False, lock)


def _absent(repo: str, subject: str) -> SourceError:
    return SourceError(
        f"{repo} {subject} is not in the cache", f"run `zoo fetch {repo}` once while online"
    )


@dataclass(frozen=True)
class _Checkout:
    """One commit whose files are obtained.

    Attributes:
        known: the record of the commit.
        listing: all its files, or those in the cache if the Hub was never asked.
        root: the cache.
        offline: open no connection.
        lock: digests that the files are compared with.
    """

    known: "CommitMetadata"
    listing: "Mapping[str, RemoteFile]"
    root: Path
    offline: bool
    lock: "Lock | None"

    @property
    def repo(self) -> str:
        return self.known.repo

    @property
    def commit(self) -> str:
        return self.known.revision

    @property
    def directory(self) -> Path:
        """The folder of the commit; the cache where none of its files was asked for."""
        from zoo.hub.listing import cached_snapshot

        return cached_snapshot(self.repo, self.commit) or self.root

    def obtain_all(self, names: Sequence[str]) -> "dict[str, FileDigest]":
        """Return the digests of files, which are then here and as they should be."""
        for name in names:
            if name not in self.listing:
                raise SourceError(f"{self.repo} has no file {name} at {self.commit[:12]}")
            check_limit(f"{self.repo} {name}", "length", self.listing[name].bytes, HUB_FILE_BYTES)
        missing = sum(self.listing[name].bytes for name in names if self._path(name) is None)
        with progress(f"fetching {self.repo}", missing, bytes_=True) as advance:
            return {name: self._obtain(name, advance) for name in names}

    def _obtain(self, name: str, advance: Advance) -> "FileDigest":
        digest = self._cached_digest(name)
        if digest is None and self.offline:
            if self._path(name) is None:
                raise _absent(self.repo, name)
            raise self._damaged(name)
        digest = digest or self._download(name, advance)
        if self.lock:
            self.lock.check(self.repo, name, digest)
        self.known.add(name, digest)
        return digest

    def _download(self, name: str, advance: Advance) -> "FileDigest":
        """Download a file, or wait until another process has done so."""
        from zoo.hub.download import download
        from zoo.hub.errors import HubRequest
        from zoo.hub.metadata import repo_folder

        request, remote = HubRequest(self.repo, self.commit, name), self.listing[name]
        with file_lock(repo_folder(self.repo) / "download.lock"):
            digest = self._cached_digest(name)
            if digest is None and self._path(name) is None:
                digest = download(request, remote, advance) or self._cached_digest(name)
            if digest is None:
                LOG.info("%s %s in the cache is damaged; downloading it again", self.repo, name)
                self._unlink_copy(name)
                digest = download(request, remote, advance, replace=True)
                digest = digest or self._cached_digest(name)
        if digest is None:
            raise self._damaged(name)
        return digest

    def _cached_digest(self, name: str) -> "FileDigest | None":
        """Return the digest of a file in the cache; ``None`` if it is missing or damaged.

        It is compared with our record of it, else with the digest that the Hub publishes.
        """
        path = self._path(name)
        if path is None:
            return None
        recorded = self.known.files.get(name)
        digest, matches = hash_file(path, "" if recorded else self.listing[name].etag)
        if recorded and (digest.bytes, digest.blake3) == (recorded.bytes, recorded.blake3):
            return recorded
        return digest if matches and not recorded else None

    def _path(self, name: str) -> Path | None:
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(self.repo, name, revision=self.commit)
        return Path(path) if isinstance(path, str) else None

    def _unlink_copy(self, name: str) -> None:
        """Remove a damaged file that is a copy: huggingface_hub replaces only linked ones."""
        path = self._path(name)
        if path is not None and not path.is_symlink():
            path.unlink()

    def _damaged(self, name: str) -> VerificationError:
        return VerificationError(
            f"{self.repo} {name} in the cache is damaged: it does not match its digest",
            f"run `zoo fetch {self.repo}` while online to download it again",
        )
