"""Normalization of tweets, as for BERTweet.

Names of users and addresses get one word each, emoji their names, and contractions are split
(Nguyen et al. 2020, arXiv:2005.10200, section 2, and the released code). Words are those of NLTK's
tokenizer of tweets.
"""

from collections.abc import Callable
from functools import cache
from html.entities import name2codepoint
from typing import Any

from zoo.tokenizers.words.libraries import load_library
from zoo.tokenizers.words.traced import TracedText

TOOL = "the rules of tweets"
INSTALL = "pip install emoji regex"
PLAIN_MARKS = {"\u2019": "'", "\u2026": "..."}
# Replacements in a text whose words are separated by spaces, in this order.
CONTRACTIONS = (
    ("cannot ", "can not "),
    ("n't ", " n't "),
    ("n 't ", " n't "),
    ("ca n't", "can't"),
    ("ai n't", "ain't"),
    *((f"'{ending} ", f" '{ending} ") for ending in ("m", "re", "s", "ll", "d", "ve")),
    (" p . m .", "  p.m."),
    (" p . m ", " p.m "),
    (" a . m .", " a.m."),
    (" a . m ", " a.m "),
)

# What words are made of.
_EYES = "[:;=8]"
_NOSE = r"[-o*']?"
_MOUTH = r"[\]\[)(dp/:}{@|\\]"
_DOMAIN = "[a-z]{2,13}"
_NESTED = r"\([^\s()]*?\([^\s()]+\)[^\s()]*?\)"  # parentheses in parentheses
_BRACKETED = r"\(\S+?\)"
_SEPARATOR = r"[ *\-.)]*"  # between the groups of a telephone number
_LETTER = r"[^\W\d_]"

# The kinds of words; the first that matches counts.
WORDS = (
    # Web addresses.
    rf"(?:https?:(?:/{{1,3}}|[a-z0-9%])|[a-z0-9.\-]+\.{_DOMAIN}/)"
    rf"(?:[^\s()<>{{}}\[\]]+|{_NESTED}|{_BRACKETED})+"
    rf"(?:{_NESTED}|{_BRACKETED}|[^\s`!()\[\]{{}};:'\".,<>?«»“”\u2018\u2019])",
    # Names of hosts, without those in e-mail addresses.
    rf"(?<!@)[a-z0-9]+(?:[.\-][a-z0-9]+)*\.{_DOMAIN}\b/?(?!@)",
    # Telephone numbers.
    rf"(?:\+?[01]{_SEPARATOR})?(?:\(?\d{{3}}{_SEPARATOR})?\d{{3}}{_SEPARATOR}\d{{4}}",
    # Emoticons, in both directions.
    f"[<>]?{_EYES}{_NOSE}{_MOUTH}",
    f"{_MOUTH}{_NOSE}{_EYES}[<>]?",
    "<3",
    # Tags of HTML, and arrows.
    r"<[^>\s]+>",
    "-+>",
    "<-+",
    # Users, hashtags and e-mail addresses.
    r"@\w+",
    r"\#+\w+[\w'\-]*\w+",
    r"[\w.+\-]+@[\w\-]+\.(?:[\w\-]\.?)+[\w\-]",
    # Words with apostrophes and hyphens, numbers, other words, dots, and single characters.
    rf"{_LETTER}(?:{_LETTER}|['\-_])+{_LETTER}",
    r"[+\-]?\d+[,/.:\-]\d+[+\-]?",
    r"\w+",
    r"\.(?:\s*\.)+",
    r"\S",
)


def normalize_tweet(tweet: TracedText) -> TracedText:
    """Return a tweet with its words separated by spaces.

    Raises:
        UsageError: a library is not installed.
    """
    patterns = _patterns()
    for mark, plain in PLAIN_MARKS.items():
        tweet = tweet.replace(mark, plain)
    tweet = tweet.sub(patterns["entity"], _character)
    tweet = tweet.sub(patterns["repeated"], r"\1\1\1")
    words = []
    for match in patterns["word"].finditer(tweet.text):
        word = tweet.cut(*match.span())
        words.append(word.become(_normalize_word(word.text)))
    normalized = TracedText.join(words)
    for old, new in CONTRACTIONS:
        normalized = normalized.replace(old, new)
    return normalized.sub(patterns["space"], " ")


def _normalize_word(word: str) -> str:
    if word.startswith("@"):
        return "@USER"
    if word.lower().startswith(("http", "www")):
        return "HTTPURL"
    if len(word) > 1:
        return word
    return PLAIN_MARKS.get(word) or _name_of_emoji()(word)


def _character(entity: Any) -> str:
    """Return the character of an entity of HTML; nothing for one that does not exist."""
    mark, is_hexadecimal, name = entity.groups()
    if not mark:
        number = name2codepoint.get(name, -1)
    else:
        try:
            number = int(name, 16 if is_hexadecimal else 10)
        except ValueError:
            return ""
        if 0x80 <= number <= 0x9F:  # As in browsers, such numbers are characters of Windows.
            return bytes((number,)).decode("cp1252", errors="ignore")
    if 0xD800 <= number <= 0xDFFF:
        return "\ufffd"
    try:
        return chr(number)
    except (ValueError, OverflowError):
        return ""


@cache
def _patterns() -> dict[str, Any]:
    """Return the patterns, by what they match."""
    regex = load_library("regex", TOOL, INSTALL)
    return {
        "entity": regex.compile("&(#?(x?))([^&;\\s]+);"),
        "repeated": regex.compile(r"([^a-zA-Z0-9])\1{3,}"),
        "word": regex.compile("|".join(WORDS), regex.IGNORECASE),
        "space": regex.compile(r"\s+"),
    }


@cache
def _name_of_emoji() -> Callable[[str], str]:
    """Return a function that replaces an emoji by its name, such as ``:red_heart:``."""
    demojize: Callable[[str], str] = load_library("emoji", TOOL, INSTALL).demojize
    return demojize
