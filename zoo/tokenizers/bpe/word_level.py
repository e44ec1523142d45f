"""BPE within lower-cased words that end in ``</w>``; spaces are not encoded."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zoo.tokenizers.bpe.base import from_merges, has_merges
from zoo.tokenizers.config_files import TokenizerFilesConfig
from zoo.tokenizers.consistency import check_same_tokenization
from zoo.tokenizers.source_files import MERGES, TOKENIZER_JSON, SourceFiles
from zoo.tokenizers.special_tokens import tokens_by_role, usual_tokens
from zoo.tokenizers.tokenizer_json import finalize, load

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END = "</w>"


def word_bpe_tokenizer(files: SourceFiles, *, roles: Mapping[str, str]) -> "Tokenizer":
    """Build a tokenizer that returns the ids of the reference implementation.

    A ``tokenizer.json`` is used unchanged.

    Args:
        files: directory with ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``.
        roles: default special tokens, role -> token, restricted to the vocabulary.

    Raises:
        SourceError: a file cannot be read.
        VerificationError: a file is malformed, or two files contradict each other.
    """
    # From ``tokenizer.json``, or from ``vocab.json`` and ``merges.txt`` (Sennrich et al. 2016,
    # arXiv:1508.07909, section 3.2; Radford et al. 2018, section 4.1).
    #
    # There are two ways to split texts into words. The original code repairs mojibake with ftfy,
    # replaces dashes and quotes, and splits with a spaCy model; all published ``tokenizer.json``
    # files split around punctuation instead, and strip accents. This module does the latter,
    # without another library and in agreement with current tools. In English, the two differ for
    # quotes, dashes, some abbreviations and contractions.
    from tokenizers import decoders, normalizers, pre_tokenizers

    settings = TokenizerFilesConfig.read(files)
    unknown = tokens_by_role(settings, roles)["unk"]
    options = {"unk_token": unknown, "end_of_word_suffix": END}
    if files.has(TOKENIZER_JSON):
        tokenizer = load(files)
        if has_merges(files):
            check_same_tokenization(files, tokenizer, from_merges(files, **options), MERGES)
    else:
        tokenizer = from_merges(files, **options)
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.BPEDecoder(suffix=END)
    defaults = usual_tokens(roles, mask_takes_space=False)
    settings.add_to(tokenizer, defaults)
    finalize(tokenizer, settings)
    return tokenizer
