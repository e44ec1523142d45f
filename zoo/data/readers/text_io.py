"""Streaming reader of the lines of a text file, optionally compressed."""

import glob
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from zoo.errors import SourceError, VerificationError
from zoo.io.files import open_regular
from zoo.io.limits import (
    FREE_EXPANSION_BYTES,
    MAX_EXPANSION,
    MAX_LINE_BYTES,
    MAX_ROW_BYTES,
    MAX_ZSTD_WINDOW,
)
from zoo.io.sizes import check_size

Encoding = Literal["utf-8", "latin-1"]
NAMED_FILE = re.compile(r"((?:glue/)?[\w.+-]+)=(.+)")  # A data set's name, and its file.
READ_BYTES = 1 << 20
ZSTD_READ_BYTES = 1 << 10  # Compressed bytes. zstd expands at most 32,768 times.
ZSTD_HEADER_BYTES = 18  # Largest header of a frame (RFC 8878, section 3.1.1.1).
GZIP = ".gz"
ZSTD = ".zst"
TAR_GZIP = ".tgz"
MDS_ZSTD = ".zstd"
OTHER_SUFFIXES = {TAR_GZIP: GZIP, MDS_ZSTD: ZSTD}
COMPRESSED = (GZIP, ZSTD)


def read_lines(
    file: Path, *, rows: bool = False, strip: bool = True, encoding: Encoding = "utf-8"
) -> Iterator[str]:
    """Yield the lines of a file.

    Lines end with a line feed, a carriage return, or both. A byte order mark is removed.

    Args:
        file: the file, which may be compressed.
        rows: whether each line must be a row, which is not cut. Otherwise a line that is longer
            than ``MAX_LINE_BYTES`` is cut into several, between words if possible.
        strip: whether to strip white space.
        encoding: encoding of the file; data sets of the nineties are in Latin-1.
    """
    for text in _texts(file, rows, encoding):
        for line in text.split("\n"):
            stripped = line.strip() if strip else line.removesuffix("\r")
            if "\r" not in stripped:
                yield stripped
                continue
            for part in stripped.split("\r"):
                yield part.strip() if strip else part


def open_last_line(file: Path) -> int | None:
    """Return the number of the last line of a file if no line feed ends it, as if it was cut."""
    feeds = 0
    last_byte = b"\n"
    for piece in read_pieces(file):
        feeds += piece.count(b"\n")
        last_byte = piece[-1:] or last_byte
    if last_byte in b"\r\n":
        return None
    return feeds + 1


def _texts(file: Path, rows: bool, encoding: Encoding) -> Iterator[str]:
    """Yield blocks of complete lines, without the last line feed."""
    unfinished_line = b""
    offset = 0
    for piece in read_pieces(file):
        head, feed, tail = piece.rpartition(b"\n")
        if feed:
            block = unfinished_line + head
            yield _decode(file, block, offset, encoding)
            offset += len(block) + 1
            unfinished_line = tail
        else:
            unfinished_line += piece
        if rows:
            what = f"length of the line at byte {offset:,} in bytes"
            check_size(
                file, what, len(unfinished_line), MAX_ROW_BYTES, hint="each line must be a row"
            )
        while not rows and len(unfinished_line) > MAX_LINE_BYTES:
            end, start = _cut(unfinished_line)
            yield _decode(file, unfinished_line[:end], offset, encoding)
            offset += start
            unfinished_line = unfinished_line[start:]
    if unfinished_line:
        yield _decode(file, unfinished_line, offset, encoding)


def _cut(data: bytes) -> tuple[int, int]:
    """Return the end of a long line's first part, and the start of its second part.

    The byte between them, if any, is a carriage return or a space.
    """
    half = MAX_LINE_BYTES // 2
    for separator in (b"\r", b" "):
        # The last byte is not searched: a line feed may follow a carriage return.
        position = data.rfind(separator, half, MAX_LINE_BYTES)
        if position > 0:
            return position, position + 1
    end = MAX_LINE_BYTES
    while end > half and data[end] & 0xC0 == 0x80:  # The byte is inside a character.
        end -= 1
    return end, end


def _decode(file: Path, data: bytes, offset: int, encoding: Encoding) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        position = f"byte {offset + error.start}"
        if file.suffix.lower() in COMPRESSED:
            position = f"{position} of its uncompressed text"
        raise VerificationError(
            f"{file} is not UTF-8: {position} ({error.reason})",
            "convert it to UTF-8, or leave it out",
        ) from error
    if offset == 0:
        text = text.removeprefix("\ufeff")
    return text


def read_pieces(file: Path) -> Iterator[bytes]:
    """Yield the uncompressed contents of a file in blocks."""
    suffix = file.suffix.lower()
    suffix = OTHER_SUFFIXES.get(suffix, suffix)
    compressed_size = None
    if suffix in COMPRESSED and file.is_file():
        compressed_size = file.stat().st_size
    if suffix == ZSTD:
        pieces = _zstd_pieces(file)
    else:
        pieces = _plain_pieces(file, is_gzip=suffix == GZIP)
    total = 0
    try:
        for piece in pieces:
            total += len(piece)
            if compressed_size is not None:
                check_expansion(file, total, compressed_size)
            yield piece
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(file, error) from error
    except OSError as error:
        raise SourceError(f"{file}: {error.strerror or error}") from error


def check_expansion(file: Path, total: int, compressed_size: int) -> None:
    """Check the compression ratio of a file, as a protection against decompression bombs."""
    if total > FREE_EXPANSION_BYTES and total > MAX_EXPANSION * compressed_size:
        raise VerificationError(
            f"{file} unpacks to more than {MAX_EXPANSION} times its {compressed_size:,} bytes",
            "decompress it first, if its size is intended",
        )


def _damaged(file: Path, error: Exception) -> VerificationError:
    return VerificationError(f"{file} is damaged: {error}", "download it again")


def _plain_pieces(file: Path, *, is_gzip: bool) -> Iterator[bytes]:
    with open_regular(file) as source:
        stream = gzip.GzipFile(fileobj=source) if is_gzip else source
        while piece := stream.read(READ_BYTES):
            yield piece


def _zstd_pieces(file: Path) -> Iterator[bytes]:
    """Yield the contents of all frames; the library does not report a truncated stream."""
    try:
        import zstandard
    except ImportError as error:
        raise SourceError(
            f"reading {file} takes zstandard, which is not installed", "pip install zstandard"
        ) from error
    frame = None
    parts: list[bytes] = []
    with open_regular(file) as source:
        while data := source.read(ZSTD_READ_BYTES):
            while data:
                if frame is None:
                    if len(data) < ZSTD_HEADER_BYTES:
                        data += source.read(ZSTD_HEADER_BYTES)
                    _check_window(file, data)
                    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
                    frame = decompressor.decompressobj()
                try:
                    parts.append(frame.decompress(data))
                except zstandard.ZstdError as error:
                    raise _damaged(file, error) from error
                data = b""
                if frame.eof:
                    data = frame.unused_data
                    frame = None
            if sum(map(len, parts)) >= READ_BYTES or len(parts) >= READ_BYTES // ZSTD_READ_BYTES:
                yield b"".join(parts)
                parts = []
    yield b"".join(parts)
    if frame is not None:
        raise _damaged(file, EOFError("it breaks off"))


def _check_window(file: Path, header: bytes) -> None:
    """Check the window of a frame of zstd, which is memory that its decompression takes."""
    import zstandard

    try:
        window = zstandard.get_frame_parameters(header).window_size
    except zstandard.ZstdError:  # Not a frame, which the decompressor says.
        return
    if window > MAX_ZSTD_WINDOW:
        raise VerificationError(
            f"{file} takes {window / (1 << 20):,.0f} MiB of memory to decompress (the window of "
            f"its zstd frame), and the limit is {MAX_ZSTD_WINDOW >> 20} MiB",
            f"compress it again: `zstd -d --long=31 -c {file} | zstd -o NEW.zst`",
        )


def split_name(path: str) -> tuple[str, str]:
    """Return name and path of ``NAME=FILE``; a path without a name has an empty one."""
    match = NAMED_FILE.fullmatch(path)
    if match is None or _names_files(path):
        return "", path
    return match[1], match[2]


def _names_files(path: str) -> bool:
    """Return whether a path exists, or is a pattern with matches, such as ``lang=en/*.tsv``."""
    return os.path.exists(path) or any(glob.iglob(path, recursive=True))
