"""Minimal pairs: how often a model prefers the acceptable of two sentences."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from zoo.data.readers.documents import iter_files
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.readers.tables import Row, read_table
from zoo.evaluation.base import LikelihoodEvaluation, Prediction, Result
from zoo.metrics.intervals import binomial_error
from zoo.overrides import override

COLUMNS = ("paradigm", "good", "bad")


class MinimalPairs(LikelihoodEvaluation):
    """Accuracy over pairs of an acceptable and an unacceptable sentence; ties count a half.

    Warstadt et al. 2020 (arXiv:1912.00582, BLiMP): a pair is correct if the acceptable sentence has
    the higher log-likelihood. Masked language models are compared by pseudo-log-likelihood (Salazar
    et al. 2020, arXiv:1910.14659), replaced-token detectors by the log-probability that tokens are
    original.

    The table has the columns ``paradigm``, ``good`` and ``bad``. ``accuracy`` is over all pairs,
    and ``paradigms`` has the accuracy of each.
    """

    name: ClassVar[str] = "minimal-pairs"

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        def read(file: Path, problems: RowProblems) -> Iterator[Row]:
            return problems.valid(read_table(file, COLUMNS, problems), _require_both)

        rows = self.samples(
            lambda problems: iter_files(files, read, problems, "pairs"),
            lambda row: Reviewed([row.values["good"], row.values["bad"]], None),
        )
        pairs = [row.values for row in rows]
        good_texts = [row["good"] for row in pairs]
        bad_texts = [row["bad"] for row in pairs]
        all_scores = self._scores([*good_texts, *bad_texts])
        good_scores = all_scores[: len(pairs)]
        bad_scores = all_scores[len(pairs) :]
        paradigm_points: dict[str, list[float]] = {}
        scores = self.observed(rows, zip(good_scores, bad_scores, strict=True), _prediction)
        for row, (good_score, bad_score) in zip(pairs, scores, strict=True):
            point = 0.5 if good_score == bad_score else float(good_score > bad_score)
            paradigm_points.setdefault(row["paradigm"], []).append(point)
        paradigms = {}
        total = 0.0
        for name, points in paradigm_points.items():
            paradigms[name] = sum(points) / len(points)
            total += sum(points)
        accuracy = total / len(pairs)
        metrics = {
            "accuracy": accuracy,
            "standard_error": binomial_error(accuracy, len(pairs)),
            "pairs": len(pairs),
        }
        return Result(metrics, {"paradigms": paradigms})

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        """Return by how much the unacceptable sentence is preferred, in nats."""
        if row["correct"]:
            return None
        margin: float = row["margin"]
        return -margin

    def _scores(self, sentences: list[str]) -> list[float]:
        encoded = self.scorer.tokenizer.encode(sentences, max_tokens=None, offsets=False)
        for sentence, tokens in zip(sentences, encoded, strict=True):
            self.require_short(sentence, tokens)
        log_probs = [0.0] * len(sentences)
        scores = self.shown(self.scorer.stream(encoded), len(sentences), "texts")
        for number, score in scores:
            log_probs[number] = score.log_prob
        return log_probs


def _prediction(row: Row, scores: tuple[float, float]) -> Prediction:
    good = row.values["good"]
    bad = row.values["bad"]
    margin = scores[0] - scores[1]
    return {
        "location": row.location,
        "text": good,
        "pair": bad,
        "paradigm": row.values["paradigm"],
        "label": good,
        "prediction": good if margin > 0 else bad,
        "margin": margin,
        "correct": margin > 0,
    }


def _require_both(row: Row) -> None:
    for name in ("good", "bad"):
        if not row.values[name].strip():
            raise RowError(
                f"{row.location}: a pair of {row.values['paradigm']!r} lacks the sentence {name}",
                "give both sentences",
            )
