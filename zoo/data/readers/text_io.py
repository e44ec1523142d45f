"""Streaming reader of the lines of a UTF-8 file, optionally compressed."""

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from zoo.errors import SourceError, VerificationError
from zoo.io.files import open_regular
from zoo.io.limits import FREE_EXPANSION_BYTES, MAX_EXPANSION, MAX_LINE_BYTES, MAX_ROW_BYTES
from zoo.io.sizes import check_size

NAMED = re.compile(r"((?:glue/)?[\w.+-]+)=(.+)")  # a data set's name, and its file
READ_BYTES = 1 << 20
ZSTD_READ_BYTES = 1 << 10  # compressed bytes; zstd expands at most 32,768 times
GZIP = ".gz"
ZSTD = ".zst"
COMPRESSED = (GZIP, ZSTD)


def read_lines(file: Path, *, rows: bool = False, strip: bool = True) -> Iterator[str]:
    """Yield the lines of a file, stripped of white space."""
    # Lines end with a line feed, a carriage return, or both. A byte order mark is removed. A line
    # longer than ``MAX_LINE_BYTES`` is cut into several, between words if possible.
    for text in _texts(file, rows):
        for line in text.split("\n"):
            stripped = line.strip() if strip else line.removesuffix("\r")
            if "\r" in stripped:
                parts = stripped.split("\r")
                yield from (part.strip() for part in parts) if strip else parts
            else:
                yield stripped


def open_last_line(file: Path) -> int | None:
    """Return the number of the last line of a file if no line feed ends it, as if it was cut."""
    feeds = 0
    last = b"\n"
    for piece in _pieces(file):
        feeds = feeds + piece.count(b"\n")
        last = piece[-1:] or last
    return None if last in b"\r\n" else feeds + 1


def _texts(file: Path, rows: bool) -> Iterator[str]:
    """Yield blocks of whole lines, without the last line feed."""
    held = b""
    offset = 0
    for piece in _pieces(file):
        before, feed, after = piece.rpartition(b"\n")
        if feed:
            whole = held + before
            yield _decoded(file, whole, offset)
            offset += len(whole) + 1
            held = after
        else:
            held += piece
        if rows:
            line = f"length of the line at byte {offset:,} in bytes"
            check_size(file, line, len(held), MAX_ROW_BYTES, hint="each line must be a row")
        while not rows and len(held) > MAX_LINE_BYTES:
            end, start = _cut(held)
            yield _decoded(file, held[:end], offset)
            offset += start
            held = held[start:]
    if held:
        yield _decoded(file, held, offset)


def _cut(data: bytes) -> tuple[int, int]:
    """Return the end of a long line's first part, and the start of its second part."""
    # The byte between them, if any, is a carriage return or a space
    half = MAX_LINE_BYTES // 2
    for separator in (b"\r", b" "):
        # not the last byte: a line feed may follow a carriage return
        place = data.rfind(separator, half, MAX_LINE_BYTES)
        if place > 0:
            return place, place + 1
    end = MAX_LINE_BYTES
    while end > half and data[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return end, end


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
    """Yield the uncompressed contents of a file in blocks."""
    suffix = file.suffix.lower()
    stored = file.stat().st_size if suffix in COMPRESSED and file.is_file() else None
    total = 0
    try:
        for piece in _zstd(file) if suffix == ZSTD else _plain(file, suffix == GZIP):
            total += len(piece)
            if stored is not None:
                check_expansion(file, total, stored)
            yield piece
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(file, error) from error
    except OSError as error:
        raise SourceError(f"{file}: {error.strerror or error}") from error


def check_expansion(file: Path, total: int, stored: int) -> None:
    """Check the compression ratio of a file, as a protection against decompression bombs."""
    if total > FREE_EXPANSION_BYTES and total > MAX_EXPANSION * stored:
        raise VerificationError(
            f"{file} unpacks to more than {MAX_EXPANSION} times its {stored:,} bytes",
            "decompress it first, if its size is intended",
        )


def _damaged(file: Path, error: Exception) -> VerificationError:
    return VerificationError(f"{file} is damaged: {error}", "download it again")


def _plain(file: Path, gzipped: bool) -> Iterator[bytes]:
    with open_regular(file) as source:
        unpacked = gzip.GzipFile(fileobj=source) if gzipped else source
        while piece := unpacked.read(READ_BYTES):
            yield piece


def _zstd(file: Path) -> Iterator[bytes]:
    """Yield the contents of all frames; the library does not report a truncated stream."""
    try:
        import zstandard
    except ImportError as error:
        raise SourceError(
            f"reading {file} takes zstandard, which is not installed", "pip install zstandard"
        ) from error
    frame = None
    held: list[bytes] = []
    with open_regular(file) as source:
        while data := source.read(ZSTD_READ_BYTES):
            while data:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                try:
                    held.append(frame.decompress(data))
                except zstandard.ZstdError as error:
                    raise _damaged(file, error) from error
                data = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
            if sum(map(len, held)) >= READ_BYTES or len(held) >= READ_BYTES // ZSTD_READ_BYTES:
                yield b"".join(held)
                held = []
    yield b"".join(held)
    if frame is not None:
        raise _damaged(file, EOFError("it breaks off"))


def split_name(path: str) -> tuple[str, str]:
    """Return name and path of ``NAME=FILE``; a path without a name has an empty one."""
    named = NAMED.fullmatch(path)
    if named is None or os.path.exists(path):
        return "", path
    return named[1], named[2]
