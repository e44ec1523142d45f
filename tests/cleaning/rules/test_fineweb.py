"""The rules of FineWeb on texts whose numbers are known."""

import pytest

from tests.cleaning.making import PROSE
from zoo.cleaning.rules.base import Removed
from zoo.cleaning.rules.fineweb import FineWebQuality

SENTENCES = PROSE.replace(". ", ".\n")


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        # No line of ten ends with a mark.
        ("line-punct-ratio", "\n".join(f"a line of a list, the number {k}" * 2 for k in range(10))),
        # Five of six lines have less than 30 characters.
        ("short-line-ratio", "\n".join([*(f"Item {k}." for k in range(5)), PROSE])),
        # A line of 66 characters occurs again.
        ("char-dup-ratio", SENTENCES + "\n" + SENTENCES.split("\n")[0]),
    ],
)
def test_a_text_is_dropped(reason: str, text: str) -> None:
    assert FineWebQuality().make_cleaner("en", lambda name: None)(text) == Removed(reason)


def test_prose_is_left() -> None:
    clean = FineWebQuality().make_cleaner("en", lambda name: None)
    assert clean(SENTENCES) == SENTENCES


def test_limits_are_settings() -> None:
    rule = FineWebQuality(char_duplicates_ratio=1.0)
    text = SENTENCES + "\n" + SENTENCES.split("\n")[0]
    assert rule.make_cleaner("en", lambda name: None)(text) == text
