"""Words as characters: the bytes of a word between two marks, padded, one id for each.

Ids are those of the released code: 1 to 256 are the bytes 0 to 255, then come the marks below,
and 0 is where there is no word.
"""

from collections.abc import Sequence

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(257, 262)


def word_ids(word: str, length: int) -> list[int]:
    """Return the ids of a word.

    Args:
        word: any text; where UTF-8 has more bytes than there is room for, its end is left out.
        length: how many ids.
    """
    return _framed([byte + 1 for byte in word.encode()[: length - 2]], length)


def sentence_ids(words: Sequence[str], length: int) -> list[list[int]]:
    """Return the ids of a sentence's words, with its two boundaries as words of their own."""
    inner = [word_ids(word, length) for word in words]
    return [boundary(BEGIN_SENTENCE, length), *inner, boundary(END_SENTENCE, length)]


def boundary(mark: int, length: int) -> list[int]:
    """Return the ids of a sentence's boundary."""
    return _framed([mark], length)


def _framed(ids: list[int], length: int) -> list[int]:
    framed = [BEGIN_WORD, *ids, END_WORD]
    return framed + [PADDING] * (length - len(framed))
