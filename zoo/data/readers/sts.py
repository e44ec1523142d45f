"""Files of semantic textual similarity: SemEval 2012 to 2016, the STS Benchmark and SICK.

A file is read as SentEval (Conneau and Kiela 2018, arXiv:1803.05449) has it, and as the organisers
published it: pairs of SemEval are in one file, and their scores in another.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from zoo.data.readers.problems import RowError
from zoo.data.readers.tab_columns import join_words, read_tab_rows
from zoo.data.readers.text_io import read_lines
from zoo.errors import SourceError
from zoo.io.numbers import parse_float
from zoo.io.paths import readable_name

# Year -> its parts, in SentEval's order. STS13 lacks SMT, which is not free.
SEMEVAL_PARTS: Mapping[str, tuple[str, ...]] = {
    "sts12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "sts13": ("FNWN", "headlines", "OnWN"),
    "sts14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "sts15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "sts16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
# Columns, counted from 0.
STS_BENCHMARK_SCORE = 4
STS_BENCHMARK_TEXT = 5
SICK_TEXT = 1
SICK_SCORE = 3


class ScoredPair(NamedTuple):
    """Two texts, and how similar people find them."""

    first: str
    second: str
    score: float


def find_semeval_files(folder: Path, part: str) -> tuple[Path, Path]:
    """Return the files of the pairs and of the scores of a part of a year.

    SentEval calls them ``STS.input.headlines.txt`` and ``STS.gs.headlines.txt``; those of 2016 were
    published as ``STS2016.input.headlines.txt`` and so on.
    """
    for prefix in ("STS", "STS2016"):
        pairs_file = folder / f"{prefix}.input.{part}.txt"
        scores_file = folder / f"{prefix}.gs.{part}.txt"
        if pairs_file.is_file() and scores_file.is_file():
            return pairs_file, scores_file
    raise SourceError(
        f"{folder} has no STS.input.{part}.txt and STS.gs.{part}.txt",
        "give the folder of the year as SentEval downloads it",
    )


def read_semeval_pairs(pairs_file: Path, scores_file: Path) -> list[ScoredPair]:
    """Return the pairs of a part that have a score: an empty line means that one has none."""
    pairs = []
    pair_lines = read_lines(pairs_file, rows=True, strip=False)
    score_lines = read_lines(scores_file, rows=True)
    numbered_lines = enumerate(itertools.zip_longest(pair_lines, score_lines), 1)
    for number, (line, score_text) in numbered_lines:
        if line is None or score_text is None:
            ended_file = scores_file
            other_file = pairs_file
            if line is None:
                ended_file = pairs_file
                other_file = scores_file
            raise SourceError(
                f"{ended_file} ends after line {number - 1:,}, and {other_file} goes on",
                "each line of one is a line of the other: download both again",
            )
        if not score_text:
            continue
        score = parse_float(score_text)
        cells = line.split("\t")
        if score is None:
            raise RowError(
                f"{readable_name(scores_file)}:{number} is {score_text[:60]!r}, not a score",
                "a line is a number, or empty",
            )
        if len(cells) < 2:
            raise RowError(
                f"{readable_name(pairs_file)}:{number} has no second text",
                "a line is two texts with a tab between them",
            )
        pairs.append(ScoredPair(join_words(cells[0]), join_words(cells[1]), score))
    if not pairs:
        raise SourceError(f"{scores_file} has no scores", "download it again")
    return pairs


def read_sts_benchmark(path: Path) -> list[ScoredPair]:
    """Return the pairs of ``sts-test.csv``, which has tabs and no header."""
    pairs = []
    for row in read_tab_rows(path, STS_BENCHMARK_TEXT + 2):
        first, second = row.cells[STS_BENCHMARK_TEXT : STS_BENCHMARK_TEXT + 2]
        score = row.number(STS_BENCHMARK_SCORE)
        pairs.append(ScoredPair(join_words(first), join_words(second), score))
    return pairs


def read_sick(path: Path) -> list[ScoredPair]:
    """Return the pairs of ``SICK_test_annotated.txt`` with their relatedness."""
    pairs = []
    for row in read_tab_rows(path, SICK_SCORE + 1, header=True):
        first, second = row.cells[SICK_TEXT : SICK_TEXT + 2]
        score = row.number(SICK_SCORE)
        pairs.append(ScoredPair(join_words(first), join_words(second), score))
    return pairs
