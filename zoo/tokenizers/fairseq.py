"""Tokenizers of models from fairseq: their special tokens, and SentencePiece with those first."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zoo.tokenizers.language_codes import LanguageCodes
from zoo.tokenizers.sentencepiece.tokenizer import sentencepiece_tokenizer
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.template import CLS_SEP_SEP

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Roles of the special tokens.
FAIRSEQ_ROLES: Mapping[str, str] = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "</s>",
    "pad": "<pad>",
    "cls": "<s>",
    "mask": "<mask>",
}
FAIRSEQ_FIRST = ("<s>", "<pad>", "</s>", "<unk>")  # The first tokens of a vocabulary.
FAIRSEQ_SKIP = 3  # Number of SentencePiece's pieces that they replace.


def fairseq_sentencepiece_tokenizer(
    files: SourceFiles, *, first: tuple[str, ...] = FAIRSEQ_FIRST, skip: int = FAIRSEQ_SKIP
) -> "Tokenizer":
    """Build the tokenizer of a masked language model with a SentencePiece model.

    Args:
        files: the files of a checkpoint.
        first: the first tokens of the vocabulary.
        skip: number of SentencePiece's pieces that they replace.
    """
    return sentencepiece_tokenizer(
        files,
        roles=FAIRSEQ_ROLES,
        template=CLS_SEP_SEP,
        first=first,
        skip=skip,
        last=(FAIRSEQ_ROLES["mask"],),
        mask_takes_space=True,
    )


def fairseq_language_tokenizer(files: SourceFiles, languages: LanguageCodes) -> "Tokenizer":
    """Build the tokenizer of a model whose languages are the last tokens before the mask.

    Args:
        files: the files of a checkpoint.
        languages: the languages, in the order of their tokens.
    """
    built = sentencepiece_tokenizer(
        files,
        roles={**FAIRSEQ_ROLES, **languages.roles},
        first=FAIRSEQ_FIRST,
        skip=FAIRSEQ_SKIP,
        last=(*languages.tokens.values(), FAIRSEQ_ROLES["mask"]),
        mask_takes_space=True,
    )
    languages.put_at_texts(built, files, FAIRSEQ_ROLES)
    return built
