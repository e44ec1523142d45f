"""BLAKE3 digests of files, compared with those that a manifest lists."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from blake3 import blake3

from zoo.errors import SourceError, VerificationError
from zoo.io.files import open_regular
from zoo.io.paths import safe_join

BUFFER = 8 << 20  # large enough for BLAKE3 to use all cores


class Digest(Protocol):
    """Length and BLAKE3 digest of a file, as ``zoo.checkpoint.FileDigest`` has them."""

    bytes: int
    blake3: str


def file_digest(path: Path, length: int | None = None) -> str:
    """Return the BLAKE3 digest of a file, computed on all cores.

    Args:
        path: a regular file.
        length: bytes from the start that are hashed; by default all.

    Raises:
        SourceError: it is missing, cannot be read, or is no regular file.
    """
    hasher = blake3(max_threads=blake3.AUTO)
    buffer = memoryview(bytearray(BUFFER))
    rest = os.stat(path).st_size if length is None else length
    with open_regular(path) as file:
        try:
            while rest > 0 and (count := file.readinto(buffer[: min(rest, BUFFER)])):
                hasher.update(buffer[:count])
                rest -= count
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
    return hasher.hexdigest()


def check_files(
    root: Path,
    files: Mapping[str, Digest],
    manifest: str,
    *,
    hint: str,
    digest: Callable[[Path], str] = file_digest,
) -> str:
    """Compare files with a manifest.

    Args:
        root: directory of the manifest.
        files: path relative to ``root`` -> what the manifest says of it.
        manifest: file name of the manifest, for messages.
        hint: the remedy in messages.
        digest: computes the BLAKE3 digest of a file.

    Returns:
        how many files were compared, in words.

    Raises:
        VerificationError: a file is missing, or differs in length or contents.
    """
    for name, expected in files.items():
        path = safe_join(root, name, str(root / manifest))
        if not path.is_file():
            raise VerificationError(f"{path} is missing: {manifest} lists it", hint)
        length = path.stat().st_size
        if length != expected.bytes:
            raise VerificationError(
                f"{path} was changed: {length:,} bytes, and {manifest} lists {expected.bytes:,}",
                hint,
            )
        if digest(path) != expected.blake3:
            raise VerificationError(
                f"{path} was changed: its contents are not those that {manifest} lists", hint
            )
    return f"{len(files)} files are as they were written"


def check_strays(root: Path, known: Iterable[str], manifest: str, *, hint: str) -> None:
    """Refuse files that a manifest does not list.

    Hidden files, which file managers and network file systems leave, are passed over, unless
    their name says that they hold tensors.

    Raises:
        VerificationError: names the first three.
    """
    names = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    strays = sorted(name for name in names - {*known, manifest} if not _is_hidden(name))
    if strays:
        raise VerificationError(
            f"{root} holds files that {manifest} does not list: {', '.join(strays[:3])}", hint
        )


def _is_hidden(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith(".") and not last.endswith(".safetensors")
