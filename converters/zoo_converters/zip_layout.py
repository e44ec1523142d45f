"""A ZIP archive as PyTorch writes it: where each record lies, from headers alone.

Two readers may find different things in one archive if it is made for that: a second directory
behind the first, names that differ in case, local headers that do not agree with the directory,
records that overlap. What torch's reader finds must be what was scanned, so all of it is refused.
"""

import struct
import zipfile
from typing import Any, BinaryIO

from zoo_converters.pickle_values import Refused

END = struct.Struct("<4s4H2LH")
END64_AT = struct.Struct("<4sLQL")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCAL = struct.Struct("<4s5H3L2H")
MAX_DIRECTORY = 1 << 23  # bytes; a record takes about 60
ENCRYPTED = 0x2041  # flag bits: encrypted, strongly encrypted, masked


def read_zip(file: BinaryIO, size: int) -> dict[str, tuple[int, int]]:
    """Check an archive and return the offset and length of each record.

    Args:
        file: the archive.
        size: its length in bytes.

    Returns:
        (offset, length) by name, without the folder that all records are in.

    Raises:
        Refused: it is not an archive as torch.save writes it.
    """
    begin = _directory(file, size)
    try:
        with zipfile.ZipFile(file) as archive:
            entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise Refused("its ZIP directory is damaged") from error
    if not entries or entries[0].header_offset:
        raise Refused("its first record is not at its beginning")
    folder = entries[0].orig_filename.partition("/")[0]
    records: dict[str, tuple[int, int]] = {}
    end = 0
    for entry in entries:
        if entry.header_offset < end:
            raise Refused(f"its record {entry.orig_filename!r:.100} overlaps another")
        offset = _data(file, entry)
        end = offset + entry.file_size
        if end > begin:
            raise Refused(f"its record {entry.orig_filename!r:.100} is longer than the file")
        inside, _, name = entry.orig_filename.partition("/")
        if inside != folder or "\0" in name:
            raise Refused("its records are in several folders")
        records[name] = offset, entry.file_size
    if len({name.lower() for name in records}) != len(entries):
        raise Refused("it has two records of one name")
    return records


def _directory(file: BinaryIO, size: int) -> int:
    """Check the end of the archive and return where its directory begins."""
    end = _unpack(END, file, size - END.size)
    if end[0] != b"PK\5\6" or end[7]:
        raise Refused("it does not end where its ZIP archive does: it is cut off or has a tail")
    length, begin, behind = end[5], end[6], size - END.size
    if size >= END.size + END64_AT.size:
        at = _unpack(END64_AT, file, size - END.size - END64_AT.size)
        if at[0] == b"PK\6\7":
            end64 = _unpack(END64, file, at[2])
            behind = at[2]
            if end64[0] != b"PK\6\6" or at[2] + END64.size + END64_AT.size + END.size != size:
                raise Refused("its ZIP directory is damaged")
            length, begin = end64[8], end64[9]
    if length > MAX_DIRECTORY or begin + length != behind:
        raise Refused("its ZIP directory is not where it should be")
    return int(begin)


def _data(file: BinaryIO, entry: zipfile.ZipInfo) -> int:
    """Check a record's own header against the directory; return where its data begin."""
    header = _unpack(LOCAL, file, entry.header_offset)
    name = file.read(header[9])
    encoding = "utf-8" if header[2] & 0x800 else "cp437"
    if header[0] != b"PK\3\4" or name.decode(encoding, "replace") != entry.orig_filename:
        raise Refused(
            f"its record {entry.orig_filename!r:.100} has another header than its directory"
        )
    if entry.compress_type or header[3] or entry.compress_size != entry.file_size:
        raise Refused(f"its record {entry.orig_filename!r:.100} is compressed")
    if (header[2] | entry.flag_bits) & ENCRYPTED:
        raise Refused(f"its record {entry.orig_filename!r:.100} is encrypted")
    return entry.header_offset + LOCAL.size + int(header[9]) + int(header[10])


def _unpack(layout: struct.Struct, file: BinaryIO, offset: int) -> tuple[Any, ...]:
    if offset < 0:
        raise Refused("it is cut off")
    file.seek(offset)
    raw = file.read(layout.size)
    if len(raw) != layout.size:
        raise Refused("it is cut off")
    return layout.unpack(raw)
