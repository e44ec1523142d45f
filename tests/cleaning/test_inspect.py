"""What texts are like, with numbers worked by hand."""

import json
from pathlib import Path

import pytest

from tests.cleaning.making import write_texts
from tests.in_process import exit_code
from zoo.cleaning.inspect import Duplicates, FrequentLines, inspect_texts
from zoo.data.readers.documents import ReaderConfig

READER = ReaderConfig()


def test_numbers(tmp_path: Path) -> None:
    texts = ["one\ntwo", "one\ntwo", "zwölf", "one"]
    statistics = inspect_texts([write_texts(tmp_path / "a.jsonl", texts)], READER)
    assert (statistics.texts, statistics.characters, statistics.bytes) == (4, 22, 23)
    assert statistics.lengths["0"] == 3 and statistics.lengths["1"] == 7
    assert statistics.duplicate_texts == 0.25
    assert statistics.duplicate_lines == pytest.approx(3 / 6)
    assert statistics.frequent_lines == [("one", 3), ("two", 2)]
    assert statistics.tokens is None and statistics.languages == {}


def test_duplicates_in_a_bounded_memory() -> None:
    duplicates = Duplicates(max_hashes=1000)
    # Each of 20,000 texts occurs twice, and 20,000 others once.
    for number in range(20_000):
        for text in (f"twice {number}", f"twice {number}", f"once {number}"):
            duplicates.add(text)
    assert len(duplicates._counts) <= 1000
    # The standard deviation of a fraction of some 750 texts is about 0.02.
    assert duplicates.fraction() == pytest.approx(1 / 3, abs=0.07)


def test_frequent_lines_in_a_bounded_memory() -> None:
    lines = FrequentLines(max_lines=100)
    for number in range(5000):
        lines.add(f"rare {number}")
        if number % 5 == 0:
            lines.add("frequent")
    (line, count), *_ = lines.most_common(3)
    assert line == "frequent" and 900 <= count <= 1000
    assert len(lines._counts) <= 100


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["one\ntwo", "one\ntwo"])
    assert exit_code(["corpus", "inspect", str(path), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["duplicate_texts"] == 0.5
    assert exit_code(["corpus", "inspect", str(path), "--quiet"]) == 0
    output = capsys.readouterr().out
    assert "duplicate lines  50.0%" in output and "two" in output
    (tmp_path / "empty.txt").write_text("\n")
    assert exit_code(["corpus", "inspect", str(tmp_path / "empty.txt")]) == 4
    assert "there is no text in" in capsys.readouterr().err
