"""Tokenizers: a SentencePiece model with ``vocab.json`` of M2M100, and with 202 codes of NLLB."""

from typing import TYPE_CHECKING

from zoo.errors import VerificationError
from zoo.tokenizers import SourceFiles, read_dictionary, sentencepiece_tokenizer, tokenizer_class
from zoo.tokenizers.fairseq import FAIRSEQ_ROLES, fairseq_language_tokenizer
from zoo.tokenizers.language_codes import LanguageCodes
from zoo.tokenizers.source_files import TOKENIZER_CONFIG, VOCAB_JSON
from zoo_m2m100.languages import M2M100, NLLB, WMT21

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CODES = {"m2m100": M2M100, "wmt21": WMT21}


def tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer of the kind that the files of a checkpoint have."""
    if files.has(VOCAB_JSON):
        return m2m100_tokenizer(files)
    if tokenizer_class(files) == "NllbTokenizer":
        return nllb_tokenizer(files)
    return sentencepiece_tokenizer(files, roles=FAIRSEQ_ROLES)


def m2m100_tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer whose languages are spelled ``__en__`` and follow the vocabulary."""
    settings = files.json_if_any(TOKENIZER_CONFIG)
    list_name = settings.get("language_codes", "m2m100")
    if list_name not in CODES:
        raise VerificationError(
            f"{files.path(TOKENIZER_CONFIG)}: language_codes = {list_name!r:.100} is not known",
            f"only {' and '.join(CODES)} are",
        )
    tokens = {name: f"__{name}__" for name in CODES[list_name]}
    languages = LanguageCodes(tokens, default="en", leads=True)
    dictionary = read_dictionary(files)
    for token in tokens.values():
        dictionary.setdefault(token, len(dictionary))
    built = sentencepiece_tokenizer(
        files,
        roles={**FAIRSEQ_ROLES, **languages.roles},
        dictionary=dictionary,
    )
    languages.put_at_texts(built, files, FAIRSEQ_ROLES)
    return built


def nllb_tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer whose languages are the last pieces before the mask token."""
    settings = files.json_if_any(TOKENIZER_CONFIG)
    leads = not settings.get("legacy_behaviour", False)
    languages = LanguageCodes({name: name for name in NLLB}, default="eng_Latn", leads=leads)
    return fairseq_language_tokenizer(files, languages)
