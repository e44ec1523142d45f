"""Tokenizers: from what a checkpoint ships to ``tokenizer.json``, and from there to ids.

``files`` and ``settings`` read a checkpoint's side files. One builder for each kind of tokenizer
(``wordpiece``) turns them into a ``tokenizers.Tokenizer``, with what all kinds share from
``stored``. ``describe`` says what ``tokenizer.json`` leaves out, ``hub`` and ``pooling`` translate
to and from what other tools read, and ``text`` is what tasks use. Importing any of them imports
no tokenizer library.
"""

from zoo.tokenization.describe import check_vocabulary, describe
from zoo.tokenization.files import TOKENIZER_FILES, SourceFiles, has_tokenizer
from zoo.tokenization.hub import hub_tokenizer_files
from zoo.tokenization.pooling import POOLING_FILES, hub_pooling_files, read_pooling
from zoo.tokenization.text import Encoded, TextTokenizer
from zoo.tokenization.wordpiece import wordpiece_tokenizer

__all__ = [
    "POOLING_FILES",
    "TOKENIZER_FILES",
    "Encoded",
    "SourceFiles",
    "TextTokenizer",
    "check_vocabulary",
    "describe",
    "has_tokenizer",
    "hub_pooling_files",
    "hub_tokenizer_files",
    "read_pooling",
    "wordpiece_tokenizer",
]
