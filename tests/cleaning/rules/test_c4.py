"""The rules of C4 on a page each, with outcomes worked by hand."""

from collections import Counter

import pytest

from tests.cleaning.making import PROSE
from zoo.cleaning.rules.base import Removed
from zoo.cleaning.rules.c4 import C4, C4Paragraphs

LINES = (
    ("too-long-word", "This line has a word of " + "x" * 1001 + " characters."),
    ("no-terminal-punc", "Home | News | Contact | About us and more"),
    ("no-terminal-punc", "The rest of this story is continued..."),
    ("too-few-words", "Read it now."),
    ("javascript", "Please enable JavaScript to read this page."),
    ("policy", "By reading this you accept our Terms of Use."),
    ("policy", "This site uses cookies to remember you."),
)
PAGES = (
    ("lorem-ipsum", PROSE + "\nLorem Ipsum dolor sit amet is the text of a template."),
    ("curly-bracket", PROSE + "\nThe function is if (a) { return b } in this example."),
    ("too-few-sentences", "There are two sentences here. This one is the last one."),
    ("too-few-sentences", "Home\nNews\nContact"),
)


@pytest.mark.parametrize(("reason", "line"), LINES)
def test_a_line_is_removed(reason: str, line: str) -> None:
    counts: Counter[str] = Counter()
    clean = C4().make_cleaner("en", lambda name: counts.update([name]))
    assert clean(f"{line}\n{PROSE}\n{line}") == PROSE
    assert counts == {reason: 2}


@pytest.mark.parametrize(("reason", "page"), PAGES)
def test_a_page_is_dropped(reason: str, page: str) -> None:
    assert C4().make_cleaner("en", lambda name: None)(page) == Removed(reason)


@pytest.mark.parametrize("end", [".", "?", "!", '"'])
def test_a_line_ends_with_a_mark(end: str) -> None:
    line = f"This is a line that ends with a mark{end}"
    cleaned = C4().make_cleaner("en", lambda name: None)(f"{PROSE}\n  {line}  ")
    assert cleaned == f"{PROSE}\n{line}"


def test_the_order_is_that_of_the_released_code() -> None:
    # The end mark is tested before filler text: a line without one does not drop its page.
    clean = C4().make_cleaner("en", lambda name: None)
    assert clean(f"{PROSE}\nlorem ipsum dolor sit amet and so on") == PROSE
    # JavaScript is tested before a bracket.
    assert clean(f"{PROSE}\nThe javascript is {'{'} a = b {'}'} in this line.") == PROSE


def test_citations_are_removed() -> None:
    page = PROSE.replace("town.", "town.[1]").replace("debate.", "debate.[citation needed][edit]")
    assert C4().make_cleaner("en", lambda name: None)(page) == PROSE
    rule = C4(remove_citations=False)
    assert rule.make_cleaner("en", lambda name: None)(page) == page


def test_settings() -> None:
    count = PROSE.count(".")
    assert count == 5
    clean = C4(min_num_sentences=5).make_cleaner("en", lambda name: None)
    assert clean(PROSE) == PROSE
    clean = C4(min_num_sentences=6).make_cleaner("en", lambda name: None)
    assert clean(PROSE) == Removed("too-few-sentences")
    page = f"{PROSE}\nNo mark at the end of this line"
    clean = C4(terminal_punctuation=False).make_cleaner("en", lambda name: None)
    assert clean(page) == page
    clean = C4(min_words_per_line=3).make_cleaner("en", lambda name: None)
    assert clean(f"{PROSE}\nRead it now.\nRead it.") == f"{PROSE}\nRead it now."


def test_paragraphs() -> None:
    clean = C4Paragraphs().make_cleaner("en", lambda name: None)
    page = "\n".join(["a" * 200] * 3)
    assert clean(page) == page
    assert clean(page[:-1]) == Removed("3-paragraphs")
    assert clean("a" * 600) == Removed("3-paragraphs")
