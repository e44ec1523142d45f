"""Merges of byte pair encoding, applied one after the other to a word.

A merge may make a piece that the vocabulary lacks, which a later merge extends, or which is unknown
(Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units", section 3.2).
The ``tokenizers`` library refuses such merges.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from zoo.io.files import decode_text
from zoo.tokenizers.targets import unpack

END = "</w>"  # end of a word
CACHED_WORDS = 100_000  # most words of a text occur often

Pair = tuple[str, str]


def read_merges(text: str) -> dict[Pair, int]:
    """Return the rank of each pair of symbols.

    A line has two symbols, and maybe a count. The last of several equal pairs has the rank.
    """
    ranks: dict[Pair, int] = {}
    for rank, line in enumerate(text.split("\n")[:-1]):
        symbols = line.split()[:2]
        if len(symbols) == 2:
            first, second = symbols
            ranks[first, second] = rank
    return ranks


def merge(word: str, ranks: Mapping[Pair, int]) -> Sequence[str]:
    """Return the symbols of a word after all merges; the last one ends with ``</w>``."""
    symbols = [*word[:-1], word[-1] + END]
    while len(symbols) > 1:
        pairs = itertools.pairwise(symbols)
        best = min(pairs, key=lambda pair: ranks.get(pair, math.inf))
        if best not in ranks:
            break
        merged = []
        index = 0
        while index < len(symbols):
            if tuple(symbols[index : index + 2]) == best:
                merged.append("".join(best))
                index += 2
            else:
                merged.append(symbols[index])
                index += 1
        symbols = merged
    return symbols


@lru_cache(maxsize=CACHED_WORDS)
def merge_packed(merges: str, word: str) -> Sequence[str]:
    """Return the symbols of a word after all merges of a packed file."""
    return merge(word, _ranks(merges))


@cache
def _ranks(merges: str) -> dict[Pair, int]:
    name = "the merges of the tokenizer"
    return read_merges(decode_text(unpack(merges, name), name))
