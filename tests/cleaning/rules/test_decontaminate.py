"""Texts that share a run of words with evaluation data."""

from pathlib import Path

import pytest

from tests.cleaning.making import write_texts
from zoo.cleaning.rules.base import Removed
from zoo.cleaning.rules.decontaminate import Decontaminate
from zoo.errors import UsageError

WORDS = [f"w{letter}" for letter in "abcdefghijklmnopqrst"]


@pytest.mark.parametrize(
    ("text", "is_dropped"),
    [
        (" ".join(["x", *WORDS[3:16], "y"]), True),  # 13 words in a row
        (" ".join(["x", *WORDS[3:15], "y"]), False),  # 12 words
        (" ".join([*WORDS[3:9], "x", *WORDS[9:16]]), False),
        ("x " + ", ".join(WORDS[3:16]).upper() + "!", True),
        ("one two three four five six seven eight", True),  # a short text as a whole
        ("too short", False),
    ],
)
def test_a_text_with_a_run_is_dropped(text: str, is_dropped: bool, tmp_path: Path) -> None:
    texts = [" ".join(WORDS), "One two, three four five six seven eight.", "too short"]
    rule = Decontaminate(evaluation=(str(write_texts(tmp_path / "eval.jsonl", texts)),))
    clean = rule.make_cleaner("en", lambda name: None)
    assert clean(text) == (Removed("contaminated") if is_dropped else text)


def test_only_short_texts(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "eval.jsonl", ["yes", "no"])
    with pytest.raises(UsageError, match="has 8 words"):
        Decontaminate(evaluation=(str(path),)).make_cleaner("en", lambda name: None)
