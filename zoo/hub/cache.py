"""The cache of the Hub's client: where the files of a repository lie.

Its layout is the client's, described in its documentation: ``blobs`` holds contents under the
digest that the Hub publishes, ``snapshots/<commit>`` names them by links into ``blobs``, and
``refs`` says which commit a branch or a tag was last seen at.
"""

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import UsageError
from zoo.hub.files import write_whole
from zoo.hub.record import Published
from zoo.paths import inside

COMMIT = re.compile(r"[0-9a-f]{40}")
REVISION = re.compile(r"\w[\w.+@/-]*")
ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class Cache:
    """One repository's part of the cache.

    Attributes:
        root: the client's cache directory (``$HF_HUB_CACHE``).
        repo: the repository's name.
        links: whether snapshots may hold symbolic links.
    """

    root: Path
    repo: str
    links: bool = True

    @classmethod
    def of(cls, repo: str) -> "Cache":
        """Return the cache where the client has it."""
        from huggingface_hub import constants

        root = Path(constants.HF_HUB_CACHE).expanduser().absolute()
        return cls(root, repo, links=not constants.HF_HUB_DISABLE_SYMLINKS)

    @property
    def folder(self) -> Path:
        """The repository's directory."""
        return self.root / self._name

    @property
    def _name(self) -> str:
        return "models--" + self.repo.replace("/", "--")

    def blob(self, etag: str) -> Path:
        """The contents that have a digest."""
        return self.folder / "blobs" / etag

    def partial(self, etag: str) -> Path:
        """The beginning of such contents, while they are downloaded."""
        return self.folder / "blobs" / f"{etag}.incomplete"

    def guard(self, etag: str) -> Path:
        """The lock file that the client holds while it downloads such contents."""
        return self.root / ".locks" / self._name / f"{etag}.lock"

    def snapshot(self, commit: str) -> Path:
        """The directory of a commit's files."""
        return self.folder / "snapshots" / commit

    def file(self, commit: str, name: str) -> Path:
        """A file of a commit.

        Raises:
            VerificationError: its name leads out of the snapshot.
        """
        return inside(self.snapshot(commit), name, f"the file list of {self.repo}")

    def commit_of(self, revision: str) -> str | None:
        """Return the commit that a branch or tag was last seen at, if it is known."""
        if COMMIT.fullmatch(revision):
            return revision
        path = self._ref(revision)
        commit = path.read_text().strip() if path.is_file() else ""
        return commit if COMMIT.fullmatch(commit) else None

    def remember(self, revision: str, commit: str) -> None:
        """Record which commit a branch or tag is at."""
        if self.commit_of(revision) != commit:
            write_whole(self._ref(revision), commit.encode())

    def _ref(self, revision: str) -> Path:
        if not REVISION.fullmatch(revision) or ".." in revision:
            raise UsageError(f"{revision!r} is no revision", "give a branch, a tag or a commit")
        return self.folder / "refs" / revision

    def found(self, commit: str) -> dict[str, Published]:
        """Return the files of a snapshot, as the links in it describe them."""
        root = self.snapshot(commit)
        paths = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
        return {
            path.relative_to(root).as_posix(): Published(
                bytes=path.stat().st_size, etag=_etag(path)
            )
            for path in paths
            if path.is_file()
        }

    def link(self, commit: str, name: str, etag: str) -> None:
        """Give contents their name in a snapshot: by a link where links work, else by a copy."""
        path, blob = self.file(commit, name), self.blob(etag)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".zoo.", dir=path.parent) as folder:
            new = Path(folder, path.name)
            if not (self.links and _symlink(os.path.relpath(blob, path.parent), new)):
                shutil.copyfile(blob, new)
            os.replace(new, path)

    def discard(self, commit: str, name: str, etag: str) -> None:
        """Remove a file and its contents."""
        self.file(commit, name).unlink(missing_ok=True)
        if etag:
            self.blob(etag).unlink(missing_ok=True)


def _symlink(target: str, path: Path) -> bool:
    try:
        path.symlink_to(target)
    except OSError:
        return False
    return True


def _etag(path: Path) -> str:
    """Return the published digest of a file in a snapshot; empty where no link tells it."""
    name = Path(os.readlink(path)).name if path.is_symlink() else ""
    return name if ETAG.fullmatch(name) else ""
