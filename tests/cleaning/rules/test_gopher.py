"""The rules of Gopher on texts whose numbers are known."""

import pytest

from tests.cleaning.making import PROSE
from zoo.cleaning.rules.base import Removed
from zoo.cleaning.rules.gopher import GopherQuality, GopherRepetition

TEXT = f"{PROSE}\nThe people of the town have been waiting for it, and they have a lot to say."


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("gopher-short-doc", "The short text that we have with it."),
        ("gopher-below-avg-threshold", "a b c d e f g the " * 10),
        ("gopher-above-avg-threshold", "international organizations " * 30),
        ("gopher-too-many-hashes", TEXT + " #" * 30),
        ("gopher-too-many-ellipsis", TEXT + " ..." * 30),
        ("gopher-too-many-bullets", "- " + TEXT.replace("\n", " ").replace(". ", ".\n- ")),
        ("gopher-below-alpha-threshold", TEXT + " 1234" * 60),
        ("gopher-enough-stop-words", "people waiting everywhere " * 20),
    ],
)
def test_a_text_is_dropped(reason: str, text: str) -> None:
    assert GopherQuality().make_cleaner("en", lambda name: None)(text) == Removed(reason)


def test_prose_is_left() -> None:
    for rule in (GopherQuality(), GopherRepetition()):
        assert rule.make_cleaner("en", lambda name: None)(TEXT) == TEXT


def test_limits_are_settings() -> None:
    words = "have with the people "
    # 48 and 52 words.
    clean = GopherQuality().make_cleaner("en", lambda name: None)
    assert clean(words * 12) == Removed("gopher-short-doc")
    assert clean(words * 13) == words * 13
    clean = GopherQuality(max_doc_words=51).make_cleaner("en", lambda name: None)
    assert clean(words * 13) == Removed("gopher-long-doc")


LINES = [f"line number {number}" for number in range(6)]
PHRASES = [f"of the {word}" for word in ("cat", "dog", "cow", "pig", "hen", "fox")]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("dup-line-frac", "\n".join([*LINES, *["the line"] * 5])),  # 4 of 11 lines
        ("dup-para-frac", "\n\n".join([*LINES, *["the paragraph"] * 5])),
        ("top-2-gram", " ".join(PHRASES)),  # "of the" has 36 of 65 characters
        # Two runs of five words that occur again have 44 of 329 characters, below 0.15; two of six
        # words have 50, above 0.14.
        ("duplicated-6-n-grams", f"{PROSE} {PROSE.partition('. ')[0]}."),
    ],
)
def test_repetition_is_dropped(reason: str, text: str) -> None:
    outcome = GopherRepetition().make_cleaner("en", lambda name: None)(text)
    assert outcome == Removed(reason)
