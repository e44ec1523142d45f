"""Tokenizers: from what a checkpoint ships to ``tokenizer.json``, and from there to ids.

``files`` and ``settings`` read a checkpoint's side files. One builder for each kind of tokenizer
(``wordpiece``, ``byte_level``, ``word_bpe``, ``sentencepiece``) turns them into a
``tokenizers.Tokenizer``, with what all kinds share from ``stored``, ``roles`` and ``template``.
``describe`` says what ``tokenizer.json`` leaves out, ``hub`` and ``pooling`` translate to and from
what other tools read, ``text`` is what tasks use, and ``train`` makes the files of a new tokenizer.
Importing any of them imports no tokenizer library.
"""

from zoo.tokenizers.bpe.byte_level import byte_level_bpe_tokenizer
from zoo.tokenizers.bpe.word_level import word_bpe_tokenizer
from zoo.tokenizers.hf_files import hub_token_ids, hub_tokenizer_files
from zoo.tokenizers.info import check_vocabulary, tokenizer_info
from zoo.tokenizers.pooling import POOLING_FILES, hub_pooling_files, read_pooling
from zoo.tokenizers.sentencepiece.proto import piece_model
from zoo.tokenizers.sentencepiece.tokenizer import sentencepiece_tokenizer
from zoo.tokenizers.source_files import TOKENIZER_FILES, SourceFiles, has_tokenizer
from zoo.tokenizers.template import CLS_SEP, CLS_SEP_SEP, EOS_ONLY, Template
from zoo.tokenizers.tokenizer import Encoded, TextTokenizer
from zoo.tokenizers.tokenizer_json import stored_kind
from zoo.tokenizers.wordpiece import wordpiece_tokenizer

__all__ = [
    "CLS_SEP",
    "CLS_SEP_SEP",
    "EOS_ONLY",
    "POOLING_FILES",
    "TOKENIZER_FILES",
    "Encoded",
    "SourceFiles",
    "Template",
    "TextTokenizer",
    "byte_level_bpe_tokenizer",
    "check_vocabulary",
    "has_tokenizer",
    "hub_pooling_files",
    "hub_token_ids",
    "hub_tokenizer_files",
    "piece_model",
    "read_pooling",
    "sentencepiece_tokenizer",
    "stored_kind",
    "tokenizer_info",
    "word_bpe_tokenizer",
    "wordpiece_tokenizer",
]
