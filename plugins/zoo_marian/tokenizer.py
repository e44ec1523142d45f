"""Tokenizers of Marian: a SentencePiece model for sources and one for targets."""

from typing import TYPE_CHECKING

from zoo.tokenizers import Template, read_dictionary, sentencepiece_tokenizer
from zoo.tokenizers.source_files import (
    SOURCE_PIECES,
    TARGET_PIECES,
    TARGET_VOCAB_JSON,
    VOCAB_JSON,
    SourceFiles,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL_TOKENS = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
TEMPLATE = Template("$A eos", "$A $B eos")


def tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer of sources."""
    if files.has(SOURCE_PIECES):
        return read_pieces(files, SOURCE_PIECES, VOCAB_JSON)
    return sentencepiece_tokenizer(files, roles=SPECIAL_TOKENS, template=TEMPLATE)


def target_tokenizer(files: SourceFiles) -> "Tokenizer | None":
    """Build the tokenizer of targets, of published files."""
    if not files.has(TARGET_PIECES):
        return None
    settings = files.json_if_any("tokenizer_config.json")
    vocabulary = TARGET_VOCAB_JSON if settings.get("separate_vocabs") else VOCAB_JSON
    return read_pieces(files, TARGET_PIECES, vocabulary)


def read_pieces(files: SourceFiles, pieces: str, vocabulary: str) -> "Tokenizer":
    """Build the tokenizer of a model file.

    Languages such as ``>>fra<<`` are tokens wherever they are in a text, and a piece that the
    vocabulary lacks is split into others. The Hub's class knows languages at the beginning only,
    and takes such a piece for the unknown token.
    """
    dictionary = read_dictionary(files, vocabulary)
    languages = [token for token in dictionary if token.startswith(">>") and token.endswith("<<")]
    return sentencepiece_tokenizer(
        files,
        roles=SPECIAL_TOKENS,
        template=TEMPLATE,
        dictionary=dictionary,
        control=languages,
        model_file=pieces,
    )
