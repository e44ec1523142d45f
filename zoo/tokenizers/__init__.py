"""Tokenizers: conversion of files to ``tokenizer.json``, and encoding of text."""

# The ``tokenizers`` library is imported on first use.

from zoo.tokenizers.bpe.byte_level import byte_level_bpe_tokenizer, fairseq_bpe_tokenizer
from zoo.tokenizers.bpe.word_level import word_bpe_tokenizer
from zoo.tokenizers.config_files import tokenizer_class
from zoo.tokenizers.fastbpe import fastbpe_tokenizer, is_fastbpe
from zoo.tokenizers.hub_files import hub_token_ids, hub_tokenizer_files
from zoo.tokenizers.info import check_template, check_vocabulary, tokenizer_info
from zoo.tokenizers.sentencepiece.model import read_dictionary
from zoo.tokenizers.sentencepiece.proto import piece_model
from zoo.tokenizers.sentencepiece.tokenizer import is_sentencepiece, sentencepiece_tokenizer
from zoo.tokenizers.source_files import TOKENIZER_FILES, SourceFiles, has_tokenizer
from zoo.tokenizers.template import CLS_SEP, CLS_SEP_SEP, EOS_ONLY, Template
from zoo.tokenizers.tokenizer import Encoded, TextTokenizer
from zoo.tokenizers.tokenizer_json import stored_kind
from zoo.tokenizers.wordpiece import wordpiece_tokenizer

__all__ = [
    "CLS_SEP",
    "CLS_SEP_SEP",
    "EOS_ONLY",
    "TOKENIZER_FILES",
    "Encoded",
    "SourceFiles",
    "Template",
    "TextTokenizer",
    "byte_level_bpe_tokenizer",
    "check_template",
    "check_vocabulary",
    "fairseq_bpe_tokenizer",
    "fastbpe_tokenizer",
    "has_tokenizer",
    "hub_token_ids",
    "hub_tokenizer_files",
    "is_fastbpe",
    "is_sentencepiece",
    "piece_model",
    "read_dictionary",
    "sentencepiece_tokenizer",
    "stored_kind",
    "tokenizer_class",
    "tokenizer_info",
    "word_bpe_tokenizer",
    "wordpiece_tokenizer",
]
