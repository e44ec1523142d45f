"""What is known of a commit of a repository: ``$ZOO_HOME/hub/<repo>/<commit>.json``.

A commit never changes, so its list of files is asked for once, and the digests of its files
are worked out once and hold from then on.
"""

from pathlib import Path

import msgspec

from zoo.checkpoint import FileDigest, Record, decode, encode
from zoo.errors import VerificationError
from zoo.hub.files import write_whole
from zoo.paths import home

LAYOUT = 1


class Published(Record):
    """A file as the Hub describes it.

    Attributes:
        bytes: its length.
        etag: the digest that the Hub publishes: SHA-256 (64 digits) or that of a git blob (40);
            empty where it is not known.
    """

    bytes: int
    etag: str


class Known(Record):
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
    listing: dict[str, Published] | None = None
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)

    def add(self, name: str, digest: FileDigest) -> None:
        """Record a file's digest, at once: an interruption loses no work."""
        if self.files.get(name) != digest:
            self.files[name] = digest
            write_whole(path_of(self.repo, self.revision), encode(self))


def path_of(repo: str, commit: str) -> Path:
    """Return where the record of a commit is kept."""
    return home() / "hub" / repo / f"{commit}.json"


def recall(repo: str, commit: str) -> Known:
    """Return what is known of a commit; an empty record if nothing is.

    Raises:
        VerificationError: the record is damaged.
    """
    path = path_of(repo, commit)
    if not path.is_file():
        return Known(zoo=LAYOUT, repo=repo, revision=commit)
    try:
        known = decode(path, Known)
    except VerificationError as error:
        raise VerificationError(error.what, "delete this record; it is made again") from error
    if known.zoo > LAYOUT or (known.repo, known.revision) != (repo, commit):
        raise VerificationError(f"{path} is no record of {repo}", "delete it; it is made again")
    return known
