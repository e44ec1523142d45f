"""``fetch``: from the name of a repository to files that are here and were checked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import SourceError, VerificationError
from zoo.hub.files import hash_file, writing
from zoo.progress import Advance, progress

if TYPE_CHECKING:
    from zoo.checkpoint import FileDigest
    from zoo.hub.cache import Cache
    from zoo.hub.record import Known, Published
    from zoo.lock import Lock

DEFAULT_BRANCH = "main"
NO_ROOM = "make room, or set $HF_HUB_CACHE and $ZOO_HOME to another place"


@dataclass(frozen=True)
class Fetched:
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
) -> Fetched:
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
    from zoo.hub import client
    from zoo.hub.cache import Cache

    client.check_name(repo)
    offline = offline or client.is_offline()
    cache = Cache.of(repo)
    with client.quiet(), writing(cache.root, NO_ROOM):
        pinned = lock.pin(repo, revision) if lock else None
        branch = DEFAULT_BRANCH if revision is None else revision
        wanted = pinned or branch
        known = _known(cache, wanted, offline)
        listing = cache.found(known.revision) if known.listing is None else known.listing
        work = _Work(cache, known, listing, offline, lock)
        names = list(dict.fromkeys(select(sorted(listing))))
        with progress(f"fetching {repo}", work.missing(names), bytes_=True) as advance:
            files = {name: work.obtain(name, advance) for name in names}
        if lock:
            lock.add(repo, branch, known.revision, files)
    return Fetched(cache.snapshot(known.revision), repo, known.revision, files)


def _known(cache: "Cache", wanted: str, offline: bool) -> "Known":
    """Resolve a revision and return what is known of its commit, asking the Hub if need be."""
    from zoo.hub.client import list_files
    from zoo.hub.patience import patiently
    from zoo.hub.record import recall

    commit = cache.commit_of(wanted)
    if offline:
        if commit is None or not cache.snapshot(commit).is_dir():
            raise _absent(cache.repo, wanted)
        return recall(cache.repo, commit)
    if commit == wanted:
        known = recall(cache.repo, commit)
        if known.listing is not None:
            return known
    commit, listing = patiently(lambda: list_files(cache.repo, wanted))
    cache.remember(wanted, commit)
    known = recall(cache.repo, commit)
    known.listing = listing
    return known


def _absent(repo: str, what: str) -> SourceError:
    return SourceError(
        f"{repo} {what} is not in the cache", f"run `zoo fetch {repo}` once while online"
    )


@dataclass(frozen=True)
class _Work:
    """One commit's files being brought together.

    Attributes:
        cache: where they go.
        known: what is known of the commit.
        listing: all its files, or those that are here if that is all there is to go by.
        offline: open no connection.
        lock: what they are compared with.
    """

    cache: "Cache"
    known: "Known"
    listing: "dict[str, Published]"
    offline: bool
    lock: "Lock | None"

    @property
    def commit(self) -> str:
        return self.known.revision

    def missing(self, names: Sequence[str]) -> int:
        """How many bytes of these files are not here."""
        absent = [n for n in names if n in self.listing and not self._here(n)]
        return sum(self.listing[n].bytes for n in absent)

    def _here(self, name: str) -> bool:
        etag = self.listing[name].etag
        here = self.cache.file(self.commit, name).is_file()
        return here or (bool(etag) and self.cache.blob(etag).is_file())

    def obtain(self, name: str, advance: Advance) -> "FileDigest":
        """Return the digest of one file, which is then here and as it should be."""
        from zoo.hub.failures import Asked
        from zoo.hub.transfer import download

        if name not in self.listing:
            raise SourceError(f"{self.cache.repo} has no file {name} at {self.commit[:12]}")
        published = self.listing[name]
        digest = None
        if not self._here(name):
            if self.offline:
                raise _absent(self.cache.repo, name)
            asked = Asked(self.cache.repo, self.commit, name)
            digest = download(self.cache, asked, published, advance)
        if not self.cache.file(self.commit, name).is_file():
            self.cache.link(self.commit, name, published.etag)
        digest = digest or self._check(name, published)
        if self.lock:
            self.lock.check(self.cache.repo, name, digest)
        self.known.add(name, digest)
        return digest

    def _check(self, name: str, published: "Published") -> "FileDigest":
        """Check a file that was here: against our record of it, else against the Hub's digest."""
        recorded = self.known.files.get(name)
        path = self.cache.file(self.commit, name)
        digest, right = hash_file(path, "" if recorded else published.etag)
        if recorded and (digest.bytes, digest.blake3) == (recorded.bytes, recorded.blake3):
            return recorded
        if right and not recorded:
            return digest
        self.cache.discard(self.commit, name, published.etag)
        raise VerificationError(
            f"{self.cache.repo} {name} in the cache is damaged: it does not match its digest",
            f"it was removed; run `zoo fetch {self.cache.repo}` to download it again",
        )
