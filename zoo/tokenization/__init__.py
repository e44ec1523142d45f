"""Tokenizers: from what a checkpoint ships to ``tokenizer.json``, and from there to ids.

``files`` and ``settings`` read a checkpoint's side files. One builder for each kind of tokenizer
(``wordpiece``, ``byte_level``, ``word_bpe``, ``sentencepiece``) turns them into a
``tokenizers.Tokenizer``, with what all kinds share from ``stored``, ``roles`` and ``template``.
``describe`` says what ``tokenizer.json`` leaves out, ``hub`` and ``pooling`` translate to and from
what other tools read, ``text`` is what tasks use, and ``train`` makes the files of a new tokenizer.
Importing any of them imports no tokenizer library.
"""

from zoo.tokenization.byte_level import byte_level_bpe_tokenizer
from zoo.tokenization.describe import check_vocabulary, describe
from zoo.tokenization.files import TOKENIZER_FILES, SourceFiles, has_tokenizer
from zoo.tokenization.hub import hub_token_ids, hub_tokenizer_files
from zoo.tokenization.piece_model import piece_model
from zoo.tokenization.pooling import POOLING_FILES, hub_pooling_files, read_pooling
from zoo.tokenization.sentencepiece import sentencepiece_tokenizer
from zoo.tokenization.stored import stored_kind
from zoo.tokenization.template import BRACKETED, CLOSED, DOUBLED, Template
from zoo.tokenization.text import Encoded, TextTokenizer
from zoo.tokenization.word_bpe import word_bpe_tokenizer
from zoo.tokenization.wordpiece import wordpiece_tokenizer

__all__ = [
    "BRACKETED",
    "CLOSED",
    "DOUBLED",
    "POOLING_FILES",
    "TOKENIZER_FILES",
    "Encoded",
    "SourceFiles",
    "Template",
    "TextTokenizer",
    "byte_level_bpe_tokenizer",
    "check_vocabulary",
    "describe",
    "has_tokenizer",
    "hub_pooling_files",
    "hub_token_ids",
    "hub_tokenizer_files",
    "piece_model",
    "read_pooling",
    "sentencepiece_tokenizer",
    "stored_kind",
    "word_bpe_tokenizer",
    "wordpiece_tokenizer",
]
