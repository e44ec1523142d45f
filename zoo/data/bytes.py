"""Lines of a file in UTF-8, which may be compressed, with little of it in memory at a time."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from zoo.errors import SourceError, VerificationError

PIECE = 1 << 20
FRAMED = 1 << 16  # of zstd, which may unpack to many times as much
GZIP, ZSTD = ".gz", ".zst"
COMPRESSED = (GZIP, ZSTD)


def lines(file: Path) -> Iterator[str]:
    """Yield a file's lines, without white space around them.

    Lines end with a line feed, a carriage return, or both. A byte order mark is no text.

    Raises:
        SourceError: it cannot be read, or what reads it is not installed.
        VerificationError: it is damaged, or not UTF-8.
    """
    for text in _texts(file):
        for line in text.split("\n"):
            stripped = line.strip()
            if "\r" in stripped:
                yield from (part.strip() for part in stripped.split("\r"))
            else:
                yield stripped


def _texts(file: Path) -> Iterator[str]:
    """Yield stretches of whole lines, without the line feed at the end."""
    held: list[bytes] = []
    offset = 0
    for piece in _pieces(file):
        end = piece.rfind(b"\n")
        if end < 0:
            held.append(piece)
            continue
        whole = b"".join([*held, piece[:end]])
        held = [piece[end + 1 :]]
        yield _decoded(file, whole, offset)
        offset += len(whole) + 1
    if any(held):
        yield _decoded(file, b"".join(held), offset)


def _decoded(file: Path, data: bytes, offset: int) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        of = "of its uncompressed text " if file.suffix.lower() in COMPRESSED else ""
        raise VerificationError(
            f"{file} is not UTF-8: byte {offset + error.start} {of}({error.reason})",
            "convert it to UTF-8, or leave it out",
        ) from error
    return text.removeprefix("\ufeff") if offset == 0 else text


def _pieces(file: Path) -> Iterator[bytes]:
    """Yield a file's contents, uncompressed."""
    suffix = file.suffix.lower()
    try:
        if suffix == ZSTD:
            yield from _zstd(file)
            return
        with gzip.open(file) if suffix == GZIP else file.open("rb") as source:
            while piece := source.read(PIECE):
                yield piece
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(file, error) from error
    except OSError as error:
        raise SourceError(f"{file}: {error.strerror or error}") from error


def _damaged(file: Path, error: Exception) -> VerificationError:
    return VerificationError(f"{file} is damaged: {error}", "download it again")


def _zstd(file: Path) -> Iterator[bytes]:
    """Yield the contents of all frames; of a stream that breaks off the library says nothing."""
    try:
        import zstandard
    except ImportError as error:
        raise SourceError(
            f"reading {file} takes zstandard, which is not installed",
            "pip install 'plm-zoo[zstd]'",
        ) from error
    frame = None
    with file.open("rb") as source:
        while data := source.read(FRAMED):
            while data:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                try:
                    yield frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise _damaged(file, error) from error
                data = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    if frame is not None:
        raise _damaged(file, EOFError("it breaks off"))
