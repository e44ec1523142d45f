"""CRC-32C checksums, and the masked form that TensorFlow's files store."""

MASK = 0xA282EAD8
POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41, lowest bit first


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_entry(byte) for byte in range(256))


def crc32c(content: bytes) -> int:
    """Return the CRC-32C of bytes."""
    # The polynomial is Castagnoli's (RFC 3720, appendix B.4). Plain Python is fast enough for the
    # short records of an index; whole tensors are checked by the ``google-crc32c`` package, which
    # is optional.
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Return the masked form of a checksum: rotated by 15 bits, plus a constant."""
    return (((crc >> 15) | (crc << 17)) + MASK) & 0xFFFFFFFF


def unmasked(stored: int) -> int:
    """Return the checksum of its masked form."""
    rotated = (stored - MASK) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF
