"""What is known of a commit of a repository: ``$ZOO_HOME/hub/<repo>/<commit>.json``.

A commit never changes, so its list of files is asked for once, and the digests of its files
are computed once and hold from then on.
"""

from pathlib import Path

import msgspec

from zoo.errors import VerificationError
from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.output.atomic import atomic_write
from zoo.io.paths import home

LAYOUT = 1


class RemoteFile(JsonStruct):
    """A file as the Hub describes it.

    Attributes:
        bytes: its length.
        etag: the digest that the Hub publishes: SHA-256 (64 digits) or that of a git blob (40);
            empty where it is not known.
    """

    bytes: int
    etag: str


class CommitMetadata(JsonStruct):
    """What is known of a commit.

    Attributes:
        zoo: version of this layout.
        repo: the repository's name.
        revision: the commit.
        listing: every file of the commit; ``None`` if the Hub was never asked.
        files: digests of the files that were downloaded and checked.
    """

    zoo: int
    repo: str
    revision: str
    listing: dict[str, RemoteFile] | None = None
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)

    def add(self, name: str, digest: FileDigest) -> None:
        """Record a file's digest, at once: an interruption loses no work."""
        if self.files.get(name) != digest:
            self.files[name] = digest
            atomic_write(metadata_path(self.repo, self.revision), encode_json(self))


def repo_folder(repo: str) -> Path:
    """Return the folder of what is known of a repository."""
    return home() / "hub" / repo


def metadata_path(repo: str, commit: str) -> Path:
    """Return the path of the metadata of a commit."""
    return repo_folder(repo) / f"{commit}.json"


def load_metadata(repo: str, commit: str) -> CommitMetadata:
    """Return the metadata of a commit; without files if there is none yet.

    Raises:
        VerificationError: the file is damaged.
    """
    path = metadata_path(repo, commit)
    if not path.is_file():
        return CommitMetadata(zoo=LAYOUT, repo=repo, revision=commit)
    try:
        known = read_json_record(path, CommitMetadata)
    except VerificationError as error:
        raise VerificationError(error.what, "delete this record; it is made again") from error
    if known.zoo > LAYOUT or (known.repo, known.revision) != (repo, commit):
        raise VerificationError(f"{path} is no record of {repo}", "delete it; it is made again")
    return known
