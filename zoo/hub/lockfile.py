"""The lock file ``zoo.lock``: pinned commits and digests of Hub repositories."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from zoo.errors import UsageError, VerificationError
from zoo.hub.files import map_os_errors
from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.locks import file_lock
from zoo.io.output.atomic import atomic_write

NAME = "zoo.lock"
FORMAT_VERSION = 1
Commit = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class LockedRepo(JsonStruct):
    """Lock entry of a repository."""

    revision: Commit  # commit hash
    files: dict[str, FileDigest]  # file name -> digest, of every file used so far


class LockFile(JsonStruct):
    """Contents of the lock file."""

    zoo: int  # version of the format
    models: dict[str, LockedRepo]  # ``repository@requested revision`` -> lock entry


class Lock:
    """An open lock file."""

    def __init__(self, path: Path) -> None:
        """Read a lock file; a missing file counts as empty."""
        self.path = path
        self._models = self._read()

    @classmethod
    def open(cls, path: Path | None) -> "Lock | None":
        """Open a lock file."""
        if path is None:
            return cls(Path(NAME)) if Path(NAME).exists() else None
        lock = cls(path)
        if not path.exists():
            with lock._exclusive():
                lock._write()
        return lock

    def pin(self, repo: str, revision: str | None) -> str | None:
        """Return the commit that a repository is locked to, or ``None``."""
        entry = self._entry(repo)
        if entry is None:
            return None
        key, pinned = entry
        locked = key.partition("@")[2]
        if revision not in (None, locked, pinned.revision):
            raise UsageError(
                f"{self.path} locks {repo} to {locked} ({pinned.revision[:12]}), not {revision}",
                f"leave the revision out, or remove {key!r} from {self.path}",
            )
        return pinned.revision

    def check(self, repo: str, name: str, digest: FileDigest) -> None:
        """Compare a file with its lock entry, if there is one."""
        entry = self._entry(repo)
        locked = entry[1].files.get(name) if entry else None
        if locked and (locked.bytes, locked.blake3) != (digest.bytes, digest.blake3):
            raise VerificationError(
                f"{repo} {name} is not the file that {self.path} locks",
                f"do not use it, unless you know why; then remove its entry from {self.path}",
            )

    def check_conversion(
        self, path: Path, repo: str, revision: str | None, files: Mapping[str, FileDigest]
    ) -> None:
        """Compare the source of a converted model with its lock entry, if there is one."""
        entry = self._entry(repo)
        if entry is None:
            return
        if revision != entry[1].revision:
            raise VerificationError(
                f"{path} was made from {repo} {str(revision)[:12]}, and {self.path} "
                f"locks it to {entry[1].revision[:12]}",
                "`zoo convert ... --force` converts it again",
            )
        for name, digest in files.items():
            self.check(repo, name, digest)

    def add(self, repo: str, revision: str, commit: str, files: dict[str, FileDigest]) -> None:
        """Add a repository, or more files of it."""
        if not self._lacks(repo, commit, files):
            return  # a read-only directory is not an error
        with self._exclusive():
            if self._lacks(repo, commit, files):
                key, pinned = self._entry(repo) or (
                    f"{repo}@{revision}",
                    LockedRepo(revision=commit, files={}),
                )
                self._models[key] = LockedRepo(revision=commit, files={**files, **pinned.files})
                self._write()

    def _lacks(self, repo: str, commit: str, files: dict[str, FileDigest]) -> bool:
        entry = self._entry(repo)
        if entry is None:
            return True
        return entry[1].revision == commit and not files.keys() <= entry[1].files.keys()

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold a lock between processes, and read the file again."""
        with (
            map_os_errors(self.path, "give another --lock"),
            file_lock(self.path.with_name(f".{self.path.name}.lock")),
        ):
            self._models = self._read()
            yield

    def _entry(self, repo: str) -> tuple[str, LockedRepo] | None:
        for key, pinned in self._models.items():
            if key.partition("@")[0] == repo:
                return key, pinned
        return None

    def _read(self) -> dict[str, LockedRepo]:
        if not self.path.exists():
            return {}
        content = read_json_record(self.path, LockFile)
        if content.zoo > FORMAT_VERSION:
            raise VerificationError(
                f"{self.path} is of layout {content.zoo}", "install a newer plm-zoo"
            )
        return content.models

    def _write(self) -> None:
        models = {
            key: LockedRepo(revision=pinned.revision, files=dict(sorted(pinned.files.items())))
            for key, pinned in sorted(self._models.items())
        }
        atomic_write(self.path, encode_json(LockFile(zoo=FORMAT_VERSION, models=models)))
