"""Pairs with scores, in the files of SemEval, the STS Benchmark and SICK."""

from pathlib import Path

import pytest

from zoo.data.readers.problems import RowError
from zoo.data.readers.sts import (
    SEMEVAL_PARTS,
    ScoredPair,
    find_semeval_files,
    read_semeval_pairs,
    read_sick,
    read_sts_benchmark,
)
from zoo.errors import SourceError

PAIRS = "a  cat sat .\ta cat sits .\nno score\there\n“x”\ty\tsource\r\n"


def semeval(folder: Path, prefix: str, pairs: str, scores: str) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    (folder / f"{prefix}.input.images.txt").write_bytes(pairs.encode())
    (folder / f"{prefix}.gs.images.txt").write_text(scores)
    return find_semeval_files(folder, "images")


@pytest.mark.parametrize("prefix", ["STS", "STS2016"])
def test_pairs_of_semeval(tmp_path: Path, prefix: str) -> None:
    files = semeval(tmp_path, prefix, PAIRS, "4.25\n\n0\n")
    expected = [ScoredPair("a cat sat .", "a cat sits .", 4.25), ScoredPair("“x”", "y", 0.0)]
    assert read_semeval_pairs(*files) == expected


def test_the_parts_are_those_of_senteval() -> None:
    assert {year: len(parts) for year, parts in SEMEVAL_PARTS.items()} == {
        "sts12": 5,
        "sts13": 3,
        "sts14": 6,
        "sts15": 5,
        "sts16": 5,
    }


@pytest.mark.parametrize(
    ("pairs", "scores", "message"),
    [
        (PAIRS, "4.25\n\n", r"gs.images.txt ends after line 2, and .*input.images.txt goes on"),
        (PAIRS, "1\n1\n1\n1\n", r"input.images.txt ends after line 3, and .*gs.images.txt goes on"),
        (PAIRS, "4.25\n\nfour\n", "gs.images.txt:3 is 'four', not a score"),
        ("one text\n", "1\n", "input.images.txt:1 has no second text"),
        ("a\tb\n", "\n", "gs.images.txt has no scores"),
    ],
)
def test_files_that_do_not_belong_together(
    tmp_path: Path, pairs: str, scores: str, message: str
) -> None:
    files = semeval(tmp_path, "STS", pairs, scores)
    with pytest.raises((RowError, SourceError), match=message):
        read_semeval_pairs(*files)


def test_a_part_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"has no STS.input.FNWN.txt and STS.gs.FNWN.txt"):
        find_semeval_files(tmp_path, "FNWN")


def test_pairs_of_the_sts_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "sts-test.csv"
    path.write_text(
        'main-captions\tMSRvid\t2012test\t0024\t2.500\tA "girl" , here .\tA boy .\n'
        "main-news\tMSRpar\t2012\t7\t5\tone\ttwo\tlicence\tsource\n"
    )
    expected = [ScoredPair('A "girl" , here .', "A boy .", 2.5), ScoredPair("one", "two", 5.0)]
    assert read_sts_benchmark(path) == expected
    path.write_text("main-captions\tMSRvid\t2012test\t0024\tx\tone\ttwo\n")
    with pytest.raises(RowError, match=r"sts-test.csv:1: 'x' in column 5 is not a number"):
        read_sts_benchmark(path)
    path.write_text("main-captions\tMSRvid\n")
    with pytest.raises(RowError, match=r":1 has 2 columns separated by tabs, and should have 7"):
        read_sts_benchmark(path)


def test_pairs_of_sick(tmp_path: Path) -> None:
    path = tmp_path / "SICK_test_annotated.txt"
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    path.write_text(f"{header}6\tA dog runs\tA dog is running\t4.7\tENTAILMENT\n")
    assert read_sick(path) == [ScoredPair("A dog runs", "A dog is running", 4.7)]
    path.write_text(header)
    with pytest.raises(SourceError, match="has no lines"):
        read_sick(path)
