"""Recorded metadata of commits: ``$ZOO_HOME/hub/<repo>/<commit>.json``."""

from pathlib import Path

import msgspec

from zoo.errors import VerificationError
from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.output.atomic import atomic_write
from zoo.io.paths import home

FORMAT_VERSION = 1


class HubFile(JsonStruct):
    """Length and digest of a file on the Hub."""

    bytes: int  # length in bytes
    # digest that the Hub publishes, SHA-256 (64 digits) or SHA-1 of the git blob (40); empty if
    # unknown
    etag: str


class CommitMetadata(JsonStruct):
    """Recorded metadata of a commit."""

    # A commit never changes, so its list of files is requested once, and the digests of its files
    # are computed once.

    zoo: int  # version of the format
    repo: str
    revision: str  # commit hash
    # every file of the commit; ``None`` if the list was never requested
    listing: dict[str, HubFile] | None = None
    # file name -> digest, of the files that were downloaded and checked
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)

    def add(self, name: str, digest: FileDigest) -> None:
        """Record the digest of a file on disk at once, so that an interruption loses no work."""
        if self.files.get(name) != digest:
            self.files[name] = digest
            atomic_write(metadata_path(self.repo, self.revision), encode_json(self))


def repo_folder(repo: str) -> Path:
    """Return the directory of the metadata of a repository."""
    return home() / "hub" / repo


def metadata_path(repo: str, commit: str) -> Path:
    """Return the path of the metadata of a commit."""
    return repo_folder(repo) / f"{commit}.json"


def load_metadata(repo: str, commit: str) -> CommitMetadata:
    """Return the metadata of a commit; empty if there is none yet."""
    path = metadata_path(repo, commit)
    if not path.is_file():
        return CommitMetadata(zoo=FORMAT_VERSION, repo=repo, revision=commit)
    try:
        metadata = read_json_record(path, CommitMetadata)
    except VerificationError as error:
        raise VerificationError(error.what, "delete it; it is created again") from error
    if metadata.zoo > FORMAT_VERSION or (metadata.repo, metadata.revision) != (repo, commit):
        raise VerificationError(
            f"{path} is not a record of {repo}", "delete it; it is created again"
        )
    return metadata
