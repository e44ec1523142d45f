"""Words of European languages, split by the scripts of Moses.

The scripts of the translation system Moses (Koehn et al. 2007) normalize punctuation and separate
it from words, by rules and abbreviations of each language. sacremoses has them in Python.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

from zoo.tokenizers.words.libraries import load_library
from zoo.tokenizers.words.traced import TracedText

TOOL = "Moses"
INSTALL = "pip install sacremoses"
PLAIN_ROMANIAN = str.maketrans("ŞşȘșŢţȚțĂăÂâÎî", "SsSsTtTtAaAaIi")

Substitution = tuple[re.Pattern[str], str]


def moses_words(text: TracedText, language: str) -> list[TracedText]:
    """Normalize the punctuation of a text, and split it into words, as Lample and Conneau do.

    Args:
        text: the text.
        language: code of a language; without rules of its own, those of English apply.

    Raises:
        UsageError: sacremoses is not installed.
    """
    for pattern, replacement in _substitutions(language):
        text = text.sub(pattern, replacement)
    text = text.strip().map_characters(_printable)
    if language == "ro":  # Sennrich et al. 2016, arXiv:1606.02891, and its scripts
        text = text.map_characters(lambda character: character.translate(PLAIN_ROMANIAN))
    return _locate(_tokenizer(language)(text.text), text)


@cache
def _substitutions(language: str) -> list[Substitution]:
    """Return the replacements that normalize punctuation."""
    normalizer_type = load_library("sacremoses", TOOL, INSTALL).MosesPunctNormalizer
    normalizer = normalizer_type(lang=language)
    steps = [*normalizer_type.REPLACE_UNICODE_PUNCTUATION, *normalizer.substitutions]
    return [(re.compile(pattern), replacement) for pattern, replacement in steps]


@cache
def _tokenizer(language: str) -> Callable[[str], list[str]]:
    """Return a function that splits a text into words."""
    tokenizer = load_library("sacremoses", TOOL, INSTALL).MosesTokenizer(lang=language)
    return lambda text: tokenizer.tokenize(text, return_str=False, escape=False)


def _printable(character: str) -> str:
    """Return a character, or nothing in place of control characters and the like."""
    return "" if unicodedata.category(character).startswith("C") else character


def _locate(words: Sequence[str], text: TracedText) -> list[TracedText]:
    """Return words with their places in the text that was split."""
    located = []
    end = 0
    for word in words:
        start = text.text.find(word, end)
        if start < 0 or text.text[end:start].strip():
            # The scripts changed the word: some names in capitals stand for dots in them.
            located.append(TracedText(word, [text.span] * len(word)))
            continue
        end = start + len(word)
        located.append(text.cut(start, end))
    return located
