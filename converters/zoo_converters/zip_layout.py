"""Positions of the records of a ZIP archive that PyTorch wrote.

A crafted archive can have different contents for two readers: by a second directory, names that
differ in case, local headers that differ from the directory, or overlapping records. Such an
archive is refused, so that the result agrees with torch's own reader. Python's ``zipfile`` parses
the directory, but checks none of this.
"""

import struct
import zipfile
from typing import Any, BinaryIO, NamedTuple

from zoo.io.limits import MAX_ZIP_DIRECTORY_BYTES
from zoo.io.sizes import size_problem
from zoo_converters.pickle_values import Refused

END = struct.Struct("<4s4H2LH")
END64_AT = struct.Struct("<4sLQL")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCAL = struct.Struct("<4s5H3L2H")
ENCRYPTED = 0x2041  # flag bits: encrypted, strongly encrypted, masked
DAMAGE = (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError, struct.error)


class ZipRecord(NamedTuple):
    """Range of a file with an uncompressed record."""

    offset: int  # position of the first byte
    length: int  # number of bytes
    crc: int | None  # CRC-32; ``None`` in the layout without checksums


def read_zip(file: BinaryIO, size: int) -> dict[str, ZipRecord]:
    """Check an archive and locate its records."""
    begin = _directory(file, size)
    try:
        with zipfile.ZipFile(file) as archive:
            entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    except DAMAGE as error:
        raise Refused("its ZIP directory is damaged") from error
    if not entries or entries[0].header_offset:
        raise Refused("its first record is not at its beginning")
    folder = entries[0].orig_filename.partition("/")[0]
    records: dict[str, ZipRecord] = {}
    end = 0
    for entry in entries:
        if entry.header_offset < end:
            raise Refused(f"its record {entry.orig_filename!r:.100} overlaps another")
        if entry.volume:
            raise Refused(f"its record {entry.orig_filename!r:.100} is on another disk")
        offset = _data(file, size, entry)
        end = offset + entry.file_size
        if end > begin:
            raise Refused(f"its record {entry.orig_filename!r:.100} is longer than the file")
        record_folder, _, name = entry.orig_filename.partition("/")
        if record_folder != folder or "\0" in name:
            raise Refused("its records are in several folders")
        records[name] = ZipRecord(offset, entry.file_size, entry.CRC)
    if len({name.lower() for name in records}) != len(entries):
        raise Refused("it has two records of one name")
    return records


def _directory(file: BinaryIO, size: int) -> int:
    """Check the end of the archive; return the position of its directory."""
    end = _unpack(END, file, size, size - END.size)
    if end[0] != b"PK\5\6" or end[7]:
        raise Refused("it does not end where its ZIP archive does: it is cut off or has a tail")
    length = end[5]
    begin = end[6]
    disks = end[1:3]
    entries = end[3:5]
    directory_end = size - END.size
    if size >= END.size + END64_AT.size:
        locator = _unpack(END64_AT, file, size, size - END.size - END64_AT.size)
        if locator[0] == b"PK\6\7":
            directory_end = locator[2]
            end64 = _unpack(END64, file, size, directory_end)
            expected = size - END64.size - END64_AT.size - END.size
            if end64[0] != b"PK\6\6" or directory_end != expected:
                raise Refused("its ZIP directory is damaged")
            length = end64[8]
            begin = end64[9]
            disks = end64[4:6]
            entries = end64[6:8]
    if any(disks) or entries[0] != entries[1]:
        raise Refused("it is a part of a ZIP archive of several disks")
    if begin + length != directory_end:
        raise Refused("its ZIP directory is not where it should be")
    problem = size_problem("length of its ZIP directory", length, MAX_ZIP_DIRECTORY_BYTES)
    if problem is not None:
        raise Refused(problem)
    return int(begin)


def _data(file: BinaryIO, size: int, entry: zipfile.ZipInfo) -> int:
    """Compare the local header of a record with the directory; return the position of its data."""
    header = _unpack(LOCAL, file, size, entry.header_offset)
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


def _unpack(layout: struct.Struct, file: BinaryIO, size: int, offset: int) -> tuple[Any, ...]:
    if not 0 <= offset <= size - layout.size:
        raise Refused("it is cut off")
    file.seek(offset)
    raw = file.read(layout.size)
    if len(raw) != layout.size:
        raise Refused("it is cut off")
    return layout.unpack(raw)
