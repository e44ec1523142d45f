"""WebDataset: tar files in which successive members of one name are a sample.

The name of a member is that of its sample up to the first dot behind the last slash; what follows
is the name of the column (https://github.com/webdataset/webdataset). A text is the member ``txt``
(or that of ``--text``), or the field of a member ``json``.
"""

import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from typing import Any, Self

import msgspec

from zoo.data.readers.documents import ReaderConfig, missing_field
from zoo.data.readers.text_io import COMPRESSED, TAR_GZIP, read_pieces
from zoo.data.streams.shards import Segment, Shard, StreamRow, require_text, whole_shard
from zoo.errors import UsageError, VerificationError
from zoo.io.files import open_regular
from zoo.io.limits import MAX_ROW_BYTES, MAX_TAR_HEADER_BYTES
from zoo.io.sizes import check_size
from zoo.overrides import override

TAR = ".tar"
DEFAULT_FIELD = "text"
TEXT_MEMBER = "txt"
JSON_MEMBER = "json"
REMEDY = "download it again"
# Members that describe the next one, which tarfile reads as a whole.
HEADER_TYPES = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
END_MARK = bytes(2 * tarfile.BLOCKSIZE)  # The last bytes of a tar file, or of its padding.


class BoundedTarInfo(tarfile.TarInfo):
    """A member whose long name, or further fields, are small."""

    @classmethod
    @override
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.type in HEADER_TYPES and member.size > MAX_TAR_HEADER_BYTES:
            raise tarfile.ReadError(
                f"the fields of a member have {member.size:,} bytes, and at most "
                f"{MAX_TAR_HEADER_BYTES:,} are read"
            )
        return member


class TarShard(Shard):
    """A tar file, which one lane reads as a whole.

    In a file that is not compressed, a row is found by the byte of its first member.
    """

    @override
    def segments(self, number: int, target_bytes: int) -> list[Segment]:
        return [whole_shard(number)]

    @override
    def rows(
        self, segment: Segment, row: int, offset: int, reader: ReaderConfig
    ) -> Iterator[StreamRow]:
        number = row
        try:
            if self.file.name.lower().endswith((*COMPRESSED, TAR_GZIP)):
                number = 0
                pieces = PieceFile(read_pieces(self.file))
                for text, _ in self._samples(pieces, pieces.read_end, reader, 0, 0):
                    number += 1
                    if number > row:
                        yield StreamRow(text, number, 0)
                return
            with open_regular(self.file) as opened:
                opened.seek(offset)
                read_end = partial(self._read_end, opened)
                for text, end in self._samples(opened, read_end, reader, offset, row):
                    number += 1
                    yield StreamRow(text, number, end)
        except tarfile.TarError as error:
            raise VerificationError(
                f"{self.file} is damaged: {error} (after row {number:,})", REMEDY
            ) from error
        except VerificationError as error:
            if error.what.startswith(f"{self.file}, row"):
                raise
            raise VerificationError(f"{error.what} (after row {number:,})", error.hint) from error

    def _read_end(self, opened: BufferedReader) -> bytes:
        """Return the last bytes of a file that is not compressed."""
        opened.seek(max(0, self.size - len(END_MARK)))
        return opened.read()

    def _samples(
        self,
        opened: Any,
        read_end: Callable[[], bytes],
        reader: ReaderConfig,
        offset: int,
        number: int,
    ) -> Iterator[tuple[str, int]]:
        """Yield the text of each sample, and the byte after it.

        Args:
            opened: the uncompressed file, at the beginning of a sample.
            read_end: returns its last bytes, once its members were read.
            reader: column of the text.
            offset: byte of the sample.
            number: number of samples before it.
        """
        sample_name = None
        members: dict[str, bytes] = {}
        end = offset
        with tarfile.open(fileobj=opened, mode="r|", tarinfo=BoundedTarInfo) as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # It would keep all of them.
                if not member.isfile():
                    continue
                folder, slash, base = member.name.rpartition("/")
                stem, _, column = base.partition(".")
                name = f"{folder}{slash}{stem}"
                if members and name != sample_name:
                    number += 1
                    yield self._text(members, reader.text_field, number), end
                    members = {}
                sample_name = name
                members[column] = b""
                if column in _text_members(reader.text_field):
                    members[column] = self._read(archive, member, number + 1)
                # Members are padded to blocks.
                blocks = -(-member.size // tarfile.BLOCKSIZE)
                end = offset + member.offset_data + blocks * tarfile.BLOCKSIZE
        # tarfile takes a file that is cut between members for complete.
        if read_end() != END_MARK:
            raise VerificationError(f"{self.file} is cut off: it has no end mark", REMEDY)
        if members:
            yield self._text(members, reader.text_field, number + 1), end

    def _read(self, archive: tarfile.TarFile, member: tarfile.TarInfo, number: int) -> bytes:
        location = f"{self.file}, row {number}"
        check_size(location, f"size of {member.name} in bytes", member.size, MAX_ROW_BYTES)
        file = archive.extractfile(member)
        assert file is not None, "it is a file"
        content = file.read()
        if len(content) < member.size:
            raise VerificationError(f"{location}: the file ends inside of {member.name}", REMEDY)
        return content

    def _text(self, members: dict[str, bytes], field: str, number: int) -> str:
        """Return the text of a sample."""
        location = f"{self.file}, row {number}"
        for column in _text_members(field):
            if column not in members:
                continue
            try:
                if column != JSON_MEMBER:
                    return members[column].decode()
                fields = msgspec.json.decode(members[column])
            except (UnicodeDecodeError, msgspec.DecodeError) as error:
                raise VerificationError(f"{location}: {column}: {error}", REMEDY) from error
            if not isinstance(fields, dict) or field not in fields:
                names = list(map(str, fields)) if isinstance(fields, dict) else []
                raise missing_field(f"{location}, {JSON_MEMBER}", field, names)
            return require_text(fields[field], location, field)
        member_names = ", ".join(members)
        raise UsageError(
            f"{location} has no member {field!r}",
            f"it has {member_names}; --text names one, or a field of the member json",
        )


def _text_members(field: str) -> tuple[str, ...]:
    """Return the columns of a sample that may have the text, in order of preference."""
    if field == DEFAULT_FIELD:
        return (TEXT_MEMBER, field, JSON_MEMBER)
    return (field, JSON_MEMBER)


class PieceFile:
    """The pieces of a decompressed file, as a file that is only read forwards."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._buffer = b""
        self._last_bytes = b""  # Of all that was decompressed.

    def read(self, size: int) -> bytes:
        """Return as many bytes, or fewer at the end."""
        parts = [self._buffer]
        available = len(self._buffer)
        while available < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            parts.append(piece)
            self._last_bytes = (self._last_bytes + piece)[-len(END_MARK) :]
            available += len(piece)
        content = b"".join(parts)
        self._buffer = content[size:]
        return content[:size]

    def read_end(self) -> bytes:
        """Read what is left, and return the last bytes, as many as an end mark has."""
        for piece in self._pieces:
            self._last_bytes = (self._last_bytes + piece)[-len(END_MARK) :]
        return self._last_bytes
