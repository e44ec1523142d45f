"""Pieces of words by fastBPE: ``bpe.codes`` has the merges, and ``vocab.txt`` the pieces.

A merge may make a piece that the vocabulary lacks, which a later merge extends, or which is unknown
(Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units", section 3.2).
The ``tokenizers`` library refuses such merges. So they are applied here, and ``tokenizer.json``
only looks the pieces up.
"""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, ClassVar

from zoo.errors import VerificationError
from zoo.io.json import JsonStruct
from zoo.tokenizers.config_files import TokenizerFilesConfig
from zoo.tokenizers.source_files import BPE_CODES, TOKENIZER_CONFIG, VOCABULARY, SourceFiles
from zoo.tokenizers.special_tokens import tokens_by_role, usual_tokens
from zoo.tokenizers.targets import pack, unpack
from zoo.tokenizers.template import Template
from zoo.tokenizers.tokenizer_json import finalize
from zoo.tokenizers.words import Word

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END = "</w>"  # end of a word in ``bpe.codes``
CONTINUED = "@@"  # end of a piece that another one continues, in ``vocab.txt``
WORD = re.compile(r"\S+\n?")  # The reference keeps a line break after a word.
CACHED_WORDS = 100_000  # most words of a text occur often
FIRST_ROLES = ("bos", "pad", "eos", "unk")  # They have the ids 0 to 3, and no lines.

Pair = tuple[str, str]


class FastBpe(JsonStruct):
    """How fastBPE splits texts into pieces."""

    tool: ClassVar[str] = "fastBPE"
    codes: str  # contents of ``bpe.codes``, packed

    def split(self, text: str) -> list[Word]:
        """Return the pieces of a text, in order."""
        return split(text, partial(_merge_word, self.codes))


@cache
def _ranks(codes: str) -> dict[Pair, int]:
    return read_merges(unpack(codes, BPE_CODES).decode())


@lru_cache(maxsize=CACHED_WORDS)
def _merge_word(codes: str, word: str) -> Sequence[str]:
    return merge(word, _ranks(codes))


def is_fastbpe(files: SourceFiles) -> bool:
    """Return whether a directory has the files of fastBPE."""
    return files.has(BPE_CODES) and files.has(VOCABULARY)


def read_fastbpe(files: SourceFiles) -> FastBpe | None:
    """Return how texts are split into pieces; ``None`` without ``bpe.codes``."""
    if not is_fastbpe(files):
        return None
    return FastBpe(codes=pack(files.text(BPE_CODES).encode()))


def fastbpe_tokenizer(
    files: SourceFiles, *, roles: Mapping[str, str], template: Template
) -> "Tokenizer":
    """Build the tokenizer that looks pieces up.

    Args:
        files: directory with ``bpe.codes`` and ``vocab.txt``; a ``tokenizer.json`` is not read,
            since it cannot have all merges.
        roles: default special tokens, role -> token.
        template: special tokens around texts.

    Raises:
        SourceError: a file cannot be read.
        VerificationError: a file is malformed, or tweets are to be normalized.
    """
    settings = TokenizerFilesConfig.read(files)
    if settings.option("normalization", (bool, type(None)), None):
        raise VerificationError(
            f"{files.path(TOKENIZER_CONFIG)}: normalization = True is not implemented",
            "normalize the texts yourself, and set it to false",
        )
    special = tokens_by_role(settings, roles)
    path = str(files.path(VOCABULARY))
    tokenizer = lookup(read_vocabulary(files.text(VOCABULARY), special, path), special["unk"])
    default_tokens = {role: special[role] for role in roles}
    usual = usual_tokens(default_tokens, mask_takes_space=False)
    settings.add_to(tokenizer, usual)
    # The vocabulary has no line for the mask token, which has the next id.
    tokenizer.add_tokens([t.build() for t in usual if tokenizer.token_to_id(t.content) is None])
    tokenizer.post_processor = template.build(tokenizer, special, settings.origin)
    finalize(tokenizer, settings)
    return tokenizer


def read_merges(text: str) -> dict[Pair, int]:
    """Return the rank of each pair of symbols in ``bpe.codes``.

    A line has two symbols and a count. The last of several equal pairs has the rank.
    """
    ranks: dict[Pair, int] = {}
    for rank, line in enumerate(text.split("\n")[:-1]):
        symbols = line.split()[:-1]
        if len(symbols) == 2:
            first, second = symbols
            ranks[first, second] = rank
    return ranks


def read_vocabulary(text: str, special: Mapping[str, str], origin: str) -> dict[str, int]:
    """Return the ids of ``vocab.txt``, whose lines have a piece and a count.

    Raises:
        VerificationError: a line has no count, or repeats a piece.
    """
    vocabulary: dict[str, int] = {}
    for role in FIRST_ROLES:
        vocabulary[special[role]] = len(vocabulary)
    for number, line in enumerate(text.splitlines(), 1):
        piece, space, _ = line.strip().rpartition(" ")
        if not space:
            raise VerificationError(f"{origin}:{number}: the line is not a piece and its count")
        if piece in vocabulary:
            raise VerificationError(f"{origin}:{number}: {piece!r:.100} has an id already")
        vocabulary[piece] = len(vocabulary)
    return vocabulary


def split(text: str, merge_word: Callable[[str], Sequence[str]]) -> list[Word]:
    """Return the pieces of a text, and where they are in it.

    Args:
        text: the text.
        merge_word: returns the symbols of a word after all merges.
    """
    pieces = []
    for match in WORD.finditer(text):
        start = match.start()
        symbols = merge_word(match.group())
        for index, symbol in enumerate(symbols):
            is_last = index == len(symbols) - 1
            content = symbol.removesuffix(END) if is_last else symbol
            end = start + len(content)
            origins = [(place, place + 1) for place in range(start, end)]
            pieces.append(Word(content if is_last else content + CONTINUED, origins))
            start = end
    return pieces


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


def lookup(vocabulary: dict[str, int], unknown: str) -> "Tokenizer":
    """Return the tokenizer that looks pieces up, and joins them when it decodes ids."""
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    spaced = decoders.WordPiece(prefix="\0", cleanup=False)  # A space before each piece.
    joined = decoders.Replace(f"{CONTINUED} ", "")
    tokenizer.decoder = decoders.Sequence([spaced, decoders.Fuse(), joined])
    return tokenizer
