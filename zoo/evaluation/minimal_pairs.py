"""Minimal pairs: how often a model prefers the acceptable of two sentences.

Warstadt et al. 2020 (arXiv:1912.00582, BLiMP): a pair is correct if the acceptable sentence has the
higher log-likelihood. Masked language models are compared by pseudo-log-likelihood (Salazar et al.
2020, arXiv:1910.14659), replaced-token detectors by the log-probability that tokens are original.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from zoo.data.readers.tables import read_table
from zoo.errors import UsageError
from zoo.evaluation.base import LikelihoodEvaluation, Result
from zoo.evaluation.metrics import binomial_error

COLUMNS = ("paradigm", "good", "bad")


class MinimalPairs(LikelihoodEvaluation):
    """Accuracy over pairs of an acceptable and an unacceptable sentence; ties count a half.

    The table has the columns ``paradigm``, ``good`` and ``bad``. ``accuracy`` is over all pairs,
    and ``paradigms`` has the accuracy of each.
    """

    name: ClassVar[str] = "minimal-pairs"

    def evaluate(self, files: Sequence[Path]) -> Result:
        """See ``Evaluation``."""
        pairs = list(itertools.islice(_pairs(files), self.limit))
        if not pairs:
            raise UsageError(f"{files[0]} has no pairs", "give a table with rows")
        good, bad = (self._scores([row[name] for row in pairs]) for name in ("good", "bad"))
        points: dict[str, list[float]] = {}
        for row, first, second in zip(pairs, good, bad, strict=True):
            point = 0.5 if first == second else float(first > second)
            points.setdefault(row["paradigm"], []).append(point)
        every = [point for group in points.values() for point in group]
        accuracy = sum(every) / len(every)
        return Result(
            {
                "accuracy": accuracy,
                "standard_error": binomial_error(accuracy, len(every)),
                "pairs": len(every),
            },
            {"paradigms": {name: sum(group) / len(group) for name, group in points.items()}},
        )

    def _scores(self, sentences: list[str]) -> list[float]:
        encoded = self.scorer.tokenizer.encode(sentences, max_tokens=None, offsets=False)
        for sentence, tokens in zip(sentences, encoded, strict=True):
            self.require_short(sentence, tokens)
        return [score.log_prob for score in self.scorer.score(encoded)]


def _pairs(files: Sequence[Path]) -> Iterator[Mapping[str, str]]:
    """Yield the rows of tables, each with both sentences.

    Raises:
        UsageError: a row lacks a sentence.
        SourceError, VerificationError: see ``read_table``.
    """
    for file in files:
        for location, values in read_table(file, COLUMNS):
            missing = [name for name in ("good", "bad") if not values[name].strip()]
            if missing:
                raise UsageError(
                    f"{location}: a pair of {values['paradigm']!r} lacks the sentence {missing[0]}",
                    "give both sentences, or leave the row out",
                )
            yield values
