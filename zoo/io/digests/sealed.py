"""JSON records that hold a digest of themselves, so that a flipped bit in a manifest is noticed.

The field ``digest`` holds the BLAKE3 digest of the file with zeros in place of that digest. It
finds damage; it does not keep anybody from writing another file with a digest that is right.
"""

from pathlib import Path

from zoo.errors import VerificationError

NO_DIGEST = "0" * 64  # value of the field before the digest is known


def add_digest(content: bytes) -> bytes:
    """Return an encoded record, whose field ``digest`` is ``UNSEALED``, with its digest."""
    return content.replace(NO_DIGEST.encode(), _digest(content).encode(), 1)


def check_digest(path: Path, content: bytes, digest: str, *, hint: str) -> None:
    """Compare the content of a file with the digest that it holds.

    Args:
        path: the file, for the message.
        content: its content.
        digest: value of the field ``digest``.
        hint: the remedy in the message.

    Raises:
        VerificationError: the file was changed after it was written.
    """
    blank = content.replace(digest.encode(errors="replace"), NO_DIGEST.encode(), 1)
    if _digest(blank) != digest:
        raise VerificationError(f"{path} was changed: its digest is not right", hint)


def _digest(content: bytes) -> str:
    from blake3 import blake3  # not at the top: what fetches files is imported without it

    return blake3(content).hexdigest()
