"""JSON records with a digest of themselves, which detects damage of a manifest."""

from pathlib import Path
from typing import Protocol, TypeVar

from zoo.errors import VerificationError
from zoo.io.files import read_regular
from zoo.io.json import parse_json_record
from zoo.io.limits import MAX_JSON_BYTES, MAX_JSON_VALUES

NO_DIGEST = "0" * 64  # value of the field before the digest is known


class DigestedRecord(Protocol):
    """A record with a digest of itself; empty in records of versions that wrote none."""

    # The field ``digest`` holds the BLAKE3 digest of the file with zeros in place of that digest.
    # It is not a signature: anyone can write another file with a correct digest.

    @property
    def digest(self) -> str:
        """BLAKE3 digest of the file."""


Record = TypeVar("Record", bound=DigestedRecord)


def read_record(
    path: Path, kind: type[Record], *, hint: str, limit: int = MAX_JSON_BYTES
) -> Record:
    """Read a JSON record and compare it with its digest."""
    # The file is read once: another process may replace it at any time
    return parse_record(read_regular(path, "record", limit), path, kind, hint=hint)


def parse_record(
    content: bytes, path: Path, kind: type[Record], *, hint: str, max_values: int = MAX_JSON_VALUES
) -> Record:
    """Return the record of a file's content; see ``read_record``."""
    record = parse_json_record(content, path, kind, max_values=max_values)
    if record.digest:
        check_digest(path, content, record.digest, hint=hint)
    return record


def add_digest(content: bytes) -> bytes:
    """Replace ``NO_DIGEST`` in an encoded record by the digest of the record."""
    return content.replace(NO_DIGEST.encode(), _digest(content).encode(), 1)


def check_digest(path: Path, content: bytes, digest: str, *, hint: str) -> None:
    """Compare a file with the digest that it contains."""
    blank = content.replace(digest.encode(errors="replace"), NO_DIGEST.encode(), 1)
    if _digest(blank) != digest:
        raise VerificationError(f"{path} was changed: its digest is not right", hint)


def _digest(content: bytes) -> str:
    from blake3 import blake3  # imported late: `zoo --help` and downloads do without it

    return blake3(content).hexdigest()
