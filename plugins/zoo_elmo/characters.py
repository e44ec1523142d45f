"""Character ids: the bytes of a word between two marks, padded to a fixed length.

Ids are the released code's: 1 to 256 are the bytes 0 to 255, then follow the marks below;
0 is padding after the last word.
"""

from collections.abc import Sequence

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(257, 262)


def word_ids(word: str, length: int) -> list[int]:
    """Return ``length`` ids for a word; its first ``length - 2`` bytes of UTF-8 are kept."""
    return _framed([byte + 1 for byte in word.encode()[: length - 2]], length)


def sentence_ids(words: Sequence[str], length: int) -> list[list[int]]:
    """Return the character ids of a sentence's words, with its boundaries as first and last."""
    inner = [word_ids(word, length) for word in words]
    return [boundary(BEGIN_SENTENCE, length), *inner, boundary(END_SENTENCE, length)]


def boundary(mark: int, length: int) -> list[int]:
    """Return the character ids of a boundary of a sentence."""
    return _framed([mark], length)


def _framed(ids: list[int], length: int) -> list[int]:
    framed = [BEGIN_WORD, *ids, END_WORD]
    return framed + [PADDING] * (length - len(framed))
