"""Words of a list: only whole words count, in any case."""

from pathlib import Path

import pytest

from zoo.cleaning.rules.base import Removed
from zoo.cleaning.rules.blocked_words import BlockedWords
from zoo.errors import UsageError


@pytest.mark.parametrize(
    ("text", "is_dropped"),
    [
        ("darn", True),
        ("He said: Darn!", True),
        ("one  two", False),
        ("a phrase of One Two words", True),
        ("darning socks", False),
        ("C++ is a language", True),
        ("nothing here", False),
    ],
)
def test_a_text_with_a_word_is_dropped(text: str, is_dropped: bool, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("darn\nOne two\n\nc++\n")
    clean = BlockedWords(file=str(path)).make_cleaner("en", lambda name: None)
    assert clean(text) == (Removed("blocked-word") if is_dropped else text)


def test_an_empty_list(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\n")
    with pytest.raises(UsageError, match="has no words"):
        BlockedWords(file=str(tmp_path / "words.txt")).make_cleaner("en", lambda name: None)
