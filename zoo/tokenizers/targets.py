"""Tokenizers of models that split targets by other pieces than sources, as translation models do.

The tokenizer of the targets is a second ``tokenizer.json``. It is kept, compressed, next to the
other properties of the first one, so that whatever copies a tokenizer also copies this one.
"""

import base64
import binascii
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import VerificationError
from zoo.io.limits import MAX_TOKENIZER_BYTES
from zoo.tokenizers.tokenizer_json import parse

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def pack(definition: bytes) -> str:
    """Return the contents of a file as a short text."""
    return base64.b64encode(zlib.compress(definition, 9)).decode("ascii")


def unpack(text: str, origin: str) -> bytes:
    """Return the contents of a file; the opposite of ``pack``.

    Raises:
        VerificationError: the text is damaged, or its contents are too long.
    """
    decompressor = zlib.decompressobj()
    try:
        compressed = base64.b64decode(text, validate=True)
        definition = decompressor.decompress(compressed, MAX_TOKENIZER_BYTES)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise VerificationError(f"{origin}: a packed file is damaged: {error}") from None
    if not decompressor.eof:
        raise VerificationError(
            f"{origin}: a packed file is damaged, or has more than {MAX_TOKENIZER_BYTES:,} bytes"
        )
    return definition


def read_target_tokenizer(text: str, origin: str) -> "Tokenizer":
    """Return the tokenizer of a packed definition."""
    return parse(unpack(text, origin), Path(origin))
