"""Answers in texts, equal answers, and votes, by hand."""

import time
from typing import Any

import pytest

from zoo.errors import UsageError
from zoo.tasks.prompt.answers import (
    AnswerPattern,
    Conclusion,
    FirstLine,
    FirstSentence,
    answer_key,
)
from zoo.tasks.prompt.generate import AnswerGenerator

EQUAL = [
    ["8", "8.", " 8 ", "+8", "8.0", "08", "$8", "8.00.", "(8)"],
    ["1000", "1,000", "$1,000.00", "\N{EURO SIGN}1000"],
    ["-3", "-3.0", "-$3"],
    ["0", "-0", "0.0"],
    ["3.5", "3.50", "3.5%"],
    [".5", "0.5"],
    ["The Eiffel Tower", "eiffel tower.", "  the  Eiffel\nTower!"],
    ["(a)", "A", "a."],
    ["12:30", "12:30."],
    ["x-1", "X1"],
    ["\u65e5\u672c", "\u65e5\u672c "],
    ["yes", "Yes.", "YES!"],
]


def test_equal_answers_have_one_key_and_others_differ() -> None:
    keys: list[str] = []
    for answers in EQUAL:
        distinct = {answer_key(answer) for answer in answers}
        assert len(distinct) == 1, answers
        keys += distinct
    assert "" not in keys
    assert len(set(keys)) == len(EQUAL)


@pytest.mark.parametrize("answer", ["", " ", ".", "?!", "\n"])
def test_answers_without_content_have_no_key(answer: str) -> None:
    assert answer_key(answer) == ""


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("He has 3 + 5 = 8. The answer is 8.", "8"),
        ("The answer is 7. No: the answer is: 8 apples.\nQ: 9", "8 apples"),
        ("so THE ANSWER IS (b)!", "(b)"),
        ("First 12, then 1,234.5 in all.", "1,234.5"),
        ("It is -3.", "-3"),
        ("It costs $18 now", "$18"),
        ("The answer is\n8", None),
        ("no idea", None),
        ("", None),
        ("\U0001f600\u65e5\u672c", None),
    ],
)
def test_a_conclusion_follows_the_phrase_or_is_the_last_number(
    text: str, answer: str | None
) -> None:
    assert Conclusion().find([text]) == [answer]


def test_other_ways_to_find_answers() -> None:
    texts = ["\n one \ntwo", "", "   "]
    assert FirstLine().find(texts) == ["one", None, None]
    sentences = [" 8. Anna has 8.", "$1,000.50!", "Yes? No.", "(B) since 1.5 > 1\nso C", ".", ""]
    expected = ["8", "$1,000.50", "Yes", "(B) since 1.5 > 1", None, None]
    assert FirstSentence().find(sentences) == expected
    odd_texts = ['say "a"\u2028 b=\U0001f600;', "\x00b=;", "b=1; b=2;", "b=", "\ud800b=x;"]
    assert AnswerPattern("b=(.*?);").find(odd_texts) == ["\U0001f600", None, "2", None, "x"]
    assert AnswerPattern(r"(?<=b)=.").find(["b=1 b=2"]) == ["=2"], "all of it without a group"
    assert AnswerPattern("x").find([]) == []


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", r"^(\w+\s?)*$"])
def test_a_pattern_without_end_is_stopped(pattern: str) -> None:
    begin = time.monotonic()
    with pytest.raises(UsageError, match=r"takes more than 0\.3 seconds for 1 texts; simplify"):
        AnswerPattern(pattern, seconds=0.3).find(["a" * 60 + "!"])
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("pattern", ["(", "[", "a{2,1}", "(?P<a>b)(?P<a>c)", "*"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="is not a regular expression"):
        AnswerPattern(pattern)


class Sampled:
    """A task that generates given texts."""

    def __init__(self, prompts: list[list[str]]) -> None:
        self.prompts = prompts

    def stream(self, records: Any) -> Any:
        for record, texts in zip(records, self.prompts, strict=True):
            yield record, {"sequences": [{"generated": text} for text in texts]}


def votes(*texts: str, **options: Any) -> Any:
    task: Any = Sampled([list(texts)])
    generator = AnswerGenerator(task, {}, Conclusion(), vote=True, **options)
    (result,) = generator.results([object()])  # type: ignore[list-item]
    return result


def test_the_most_frequent_answer_wins_and_the_first_of_equals() -> None:
    result = votes("The answer is 5.", "it is 8", "so the answer is $8.00", "?", "= 5", "8 or 8")
    assert result["answer"] == "8"
    assert result["votes"] == {"8": 3, "5": 2}
    assert result["generated"] == "it is 8"
    tied = votes("it is 2", "it is 1", "1.0", "two: 2")
    assert (tied["answer"], tied["votes"]) == ("2", {"2": 2, "1": 2})


def test_texts_without_answers_do_not_vote() -> None:
    assert votes("?", "no", "it is 4")["answer"] == "4"
    nothing = votes("?", "no")
    assert (nothing["answer"], nothing["votes"], nothing["generated"]) == (None, {}, "?")


def test_a_text_ends_where_another_example_begins() -> None:
    text = "2 + 2. The answer is 4.\n\nQ: 3 + 3? The answer is 6."
    assert votes(text)["answer"] == "6"
    assert votes(text, stop="\n\n")["answer"] == "4"
    assert votes("\n\nThe answer is 6.", stop="\n\n")["answer"] is None


def test_labels_are_found_in_conclusions() -> None:
    task: Any = None
    generator = AnswerGenerator(task, {"pos": "great", "neg": "bad"}, Conclusion())
    texts = ["I liked it, so the answer is Great.", "The answer is bad", "the answer is unclear"]
    assert generator.find(texts) == ["pos", "neg", None]
