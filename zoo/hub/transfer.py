"""Downloading one file: resumed where it stopped, checked before it enters the cache."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.checkpoint import FileDigest
from zoo.errors import VerificationError
from zoo.hub.cache import Cache
from zoo.hub.client import reading
from zoo.hub.failures import Asked
from zoo.hub.files import hash_file
from zoo.hub.patience import Passing, Patience
from zoo.hub.record import Published
from zoo.progress import Advance

if TYPE_CHECKING:
    import httpx2

BUFFER = 1 << 20


def download(
    cache: Cache, asked: Asked, published: Published, advance: Advance
) -> FileDigest | None:
    """Bring a file's contents into the cache, beginning with what an earlier try left there.

    Args:
        cache: the repository's cache.
        asked: the file, at a commit.
        published: what the Hub says of it.
        advance: told how many bytes arrived; fewer than none where a beginning proved useless.

    Returns:
        The file's digest; ``None`` if another process brought the file here meanwhile.

    Raises:
        SourceError: the Hub does not give it out, or fails; what arrived is kept.
        VerificationError: it is not of the length or digest that the Hub publishes.
    """
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    part, blob = cache.partial(published.etag), cache.blob(published.etag)
    for path in (blob, guard := cache.guard(published.etag)):
        path.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(guard):
        if blob.is_file():  # another process was quicker
            return None
        part.touch()
        advance(_size(part))
        _receive_all(asked, part, published.bytes, advance)
        return _admit(part, blob, asked, published)


def _receive_all(asked: Asked, part: Path, expected: int, advance: Advance) -> None:
    """Read until the file is as long as it should be, over as many connections as it takes."""
    if _size(part) > expected:
        _restart(part, advance)
    patience = Patience()
    while (before := _size(part)) < expected:
        try:
            _receive(asked, part, expected, advance)
            if _size(part) < expected:  # an answer that did not say how long it is
                raise Passing(f"the answer for {asked} stopped too early", "try again")
        except Passing as error:
            if _size(part) > before:
                patience.progressed()
            patience.pause(error)


def _receive(asked: Asked, part: Path, expected: int, advance: Advance) -> None:
    """Append what one connection brings."""
    have = _size(part)
    with reading(asked, have) as response:
        begin = _begin(response, have)
        if begin is None:
            _restart(part, advance)
            raise Passing(f"the Hub does not continue {asked}", "try again")
        _check_length(response, begin, expected, asked)
        if begin < have:
            _restart(part, advance)
        with part.open("ab", buffering=BUFFER) as file:
            for piece in response.iter_bytes():
                file.write(piece)
                advance(len(piece))
                begin += len(piece)
                if begin > expected:
                    break
    if begin > expected:
        part.unlink()
        raise _wrong_length(asked, begin, expected)


def _begin(response: "httpx2.Response", have: int) -> int | None:
    """Return where in the file the answer begins: where we asked, at its start, or elsewhere."""
    if response.status_code != 206:
        return None if response.status_code == 416 else 0
    match = re.match(r"bytes (\d+)-", response.headers.get("content-range", ""))
    return have if match and int(match[1]) == have else None


def _check_length(response: "httpx2.Response", begin: int, expected: int, asked: Asked) -> None:
    """Refuse a file of another length before it is read."""
    length = response.headers.get("content-length", "")
    if not length.isdigit() or "content-encoding" in response.headers:
        return
    if begin + int(length) != expected:
        raise _wrong_length(asked, begin + int(length), expected)


def _wrong_length(asked: Asked, found: int, expected: int) -> VerificationError:
    return VerificationError(
        f"{asked} should have {expected} bytes, and the Hub sends {found}",
        "try again; if it persists, do not use it",
    )


def _admit(part: Path, blob: Path, asked: Asked, published: Published) -> FileDigest:
    """Check the contents, then let them into the cache."""
    digest, right = hash_file(part, published.etag)
    if not right:
        part.unlink()
        raise VerificationError(
            f"{asked} does not match the digest that the Hub publishes ({published.etag[:12]}...)",
            "it was thrown away; try again, and if it persists do not use it",
        )
    os.replace(part, blob)
    return digest


def _restart(part: Path, advance: Advance) -> None:
    advance(-_size(part))
    os.truncate(part, 0)


def _size(part: Path) -> int:
    return part.stat().st_size
