"""Pieces of words by fastBPE: ``bpe.codes`` has the merges, and ``vocab.txt`` the pieces.

``tokenizer.json`` cannot have all merges (see ``zoo.tokenizers.bpe.merges``), and only looks the
pieces up. The texts of models of tweets are normalized first.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import VerificationError
from zoo.io.json import JsonStruct, encode_hub_json
from zoo.tokenizers.bpe.merges import END, merge_packed
from zoo.tokenizers.config_files import TokenizerFilesConfig
from zoo.tokenizers.source_files import (
    ADDED_TOKENS,
    BPE_CODES,
    TOKENIZER_CONFIG,
    VOCABULARY,
    SourceFiles,
)
from zoo.tokenizers.special_tokens import tokens_by_role, usual_tokens
from zoo.tokenizers.targets import pack, unpack
from zoo.tokenizers.template import Template
from zoo.tokenizers.tokenizer_json import finalize
from zoo.tokenizers.words.encoding import Word
from zoo.tokenizers.words.traced import TracedText
from zoo.tokenizers.words.tweets import normalize_tweet

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import Model

CONTINUED = "@@"  # end of a piece that another one continues, in ``vocab.txt``
WORD = re.compile(r"\S+\n?")  # The reference keeps a line break after a word.
FIRST_ROLES = ("bos", "pad", "eos", "unk")  # They have the ids 0 to 3, and no lines.
NORMALIZATION = "normalization"  # the key of tweets


class FastBpe(JsonStruct, tag="fastbpe"):
    """How fastBPE splits texts into pieces."""

    tool: ClassVar[str] = "fastBPE"

    codes: str  # contents of ``bpe.codes``, packed
    vocabulary: str  # contents of ``vocab.txt``, packed
    tweets: bool = False  # normalize texts as tweets first

    @property
    def changes(self) -> tuple[str, ...]:
        """What it changes in texts."""
        return ("names, addresses and emoji of tweets replaced",) if self.tweets else ()

    def split(self, text: str, model: "Model | None" = None) -> list[Word]:
        """Return the pieces of a text, in order.

        Raises:
            UsageError: tweets are normalized, and a library is not installed.
        """
        traced = TracedText(text)
        if self.tweets:
            traced = normalize_tweet(traced)
        pieces = []
        for match in WORD.finditer(traced.text):
            start = match.start()
            symbols = merge_packed(self.codes, match.group())
            for index, symbol in enumerate(symbols):
                is_last = index == len(symbols) - 1
                content = symbol.removesuffix(END) if is_last else symbol
                origins = traced.origins[start : start + len(content)]
                pieces.append(Word(content if is_last else content + CONTINUED, origins))
                start += len(content)
        return pieces

    def hub_files(
        self, tokenizer: Mapping[str, Any], config: Mapping[str, Any]
    ) -> dict[str, bytes]:
        """Return the tokenizer files of the Hub's layout."""
        added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        name = "BertweetTokenizer" if self.tweets else "PhobertTokenizer"
        return {
            VOCABULARY: unpack(self.vocabulary, VOCABULARY),
            BPE_CODES: unpack(self.codes, BPE_CODES),
            ADDED_TOKENS: encode_hub_json(added),
            TOKENIZER_CONFIG: encode_hub_json({**config, "tokenizer_class": name}),
        }


def is_fastbpe(files: SourceFiles) -> bool:
    """Return whether a directory has the files of fastBPE."""
    return files.has(BPE_CODES) and files.has(VOCABULARY)


def read_fastbpe(files: SourceFiles, settings: TokenizerFilesConfig) -> FastBpe | None:
    """Return how texts are split into pieces; ``None`` without ``bpe.codes``."""
    if not is_fastbpe(files):
        return None
    files.text(BPE_CODES)
    return FastBpe(
        codes=pack(files.bytes(BPE_CODES)),
        vocabulary=pack(files.bytes(VOCABULARY)),
        tweets=bool(settings.option(NORMALIZATION, (bool, type(None)), False)),
    )


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
        VerificationError: a file is malformed.
    """
    settings = TokenizerFilesConfig.read(files)
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


def lookup(vocabulary: dict[str, int], unknown: str) -> "Tokenizer":
    """Return the tokenizer that looks pieces up, and joins them when it decodes ids."""
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    spaced = decoders.WordPiece(prefix="\0", cleanup=False)  # A space before each piece.
    joined = decoders.Replace(f"{CONTINUED} ", "")
    tokenizer.decoder = decoders.Sequence([spaced, decoders.Fuse(), joined])
    return tokenizer
