"""Reading of LevelDB tables, the format of the index of a TensorFlow checkpoint.

A footer has the position of an index block, whose entries have the positions of data blocks, whose
entries are keys and values in order; see
https://github.com/google/leveldb/blob/main/doc/table_format.md. The checksum of every block, a
masked CRC-32C, is verified. Implemented here because LevelDB opens directories of tables, not a
single one.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

from zoo.io.crc32c import unmasked
from zoo.io.limits import MAX_NAME_LENGTH
from zoo.io.protobuf import varint
from zoo.io.sizes import size_problem

MAGIC = 0xDB4775248B80FB57
FOOTER_BYTES = 48
TRAILER = struct.Struct("<BI")  # The compression type and the checksum.
UNCOMPRESSED = 0

Checksum = Callable[[Any], int]  # Computes the CRC-32C of bytes or of a byte array.


def read_table(content: bytes, checksum: Checksum) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and the values in order."""
    if len(content) < FOOTER_BYTES or content[-8:] != struct.pack("<Q", MAGIC):
        raise ValueError("it does not end as a table does")
    footer = content[-FOOTER_BYTES:]
    _, at = _handle(footer, 0)  # The meta index is empty.
    index, _ = _handle(footer, at)
    previous_key: bytes | None = None
    end = 0
    for _, value in _entries(_block(content, index, checksum)):
        handle, _ = _handle(value, 0)
        offset, size = handle
        if offset < end:  # Otherwise a small table could repeat a block a million times.
            raise ValueError("its blocks are not in order")
        end = offset + size
        for key, entry in _entries(_block(content, handle, checksum)):
            if previous_key is not None and key <= previous_key:
                raise ValueError("its keys are not in order")
            previous_key = key
            yield key, entry


def _handle(content: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Parse a block handle; return (offset, size) of the block, and the position after it."""
    offset, at = varint(content, at)
    size, at = varint(content, at)
    return (offset, size), at


def _block(content: bytes, handle: tuple[int, int], checksum: Checksum) -> bytes:
    offset, size = handle
    end = offset + size + TRAILER.size
    if end > len(content):
        raise ValueError("a block extends past its end")
    compression, masked_checksum = TRAILER.unpack(content[offset + size : end])
    if checksum(content[offset : offset + size + 1]) != unmasked(masked_checksum):
        raise ValueError("a block's checksum does not match")
    if compression != UNCOMPRESSED:
        raise ValueError("a block is compressed, which TensorFlow does not do")
    return content[offset : offset + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a block; keys share a prefix with the key before them."""
    (restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise ValueError("a block is shorter than its restarts")
    at = 0
    key = b""
    while at < end:
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        size, at = varint(block, at)
        if shared > len(key) or at + unshared + size > end:
            raise ValueError("an entry leads out of its block")
        problem = size_problem("length of a key", shared + unshared, MAX_NAME_LENGTH)
        if problem is not None:
            raise ValueError(problem)
        key = key[:shared] + block[at : at + unshared]
        yield key, block[at + unshared : at + unshared + size]
        at += unshared + size
