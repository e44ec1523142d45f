"""Splitting of texts by a library, before ``tokenizer.json`` reads the parts."""

from zoo.tokenizers.words.encoding import Splitter, Word, WordEncoding, encode_words

__all__ = ["Splitter", "Word", "WordEncoding", "encode_words"]
