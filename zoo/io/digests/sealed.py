"""JSON records with a digest of themselves, which detects damage of a manifest.

The field ``digest`` holds the BLAKE3 digest of the file with zeros in place of that digest. It is
not a signature: anyone can write another file with a correct digest.
"""

from pathlib import Path

from zoo.errors import VerificationError

NO_DIGEST = "0" * 64  # value of the field before the digest is known


def add_digest(content: bytes) -> bytes:
    """Replace ``NO_DIGEST`` in an encoded record by the digest of the record."""
    return content.replace(NO_DIGEST.encode(), _digest(content).encode(), 1)


def check_digest(path: Path, content: bytes, digest: str, *, hint: str) -> None:
    """Compare a file with the digest that it contains.

    Args:
        path: path of the file, for the message.
        content: contents of the file.
        digest: value of the field ``digest``.
        hint: remedy for the message.

    Raises:
        VerificationError: the file was changed after it was written.
    """
    blank = content.replace(digest.encode(errors="replace"), NO_DIGEST.encode(), 1)
    if _digest(blank) != digest:
        raise VerificationError(f"{path} was changed: its digest is not right", hint)


def _digest(content: bytes) -> str:
    from blake3 import blake3  # imported late: `zoo --help` and downloads do without it

    return blake3(content).hexdigest()
