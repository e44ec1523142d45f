"""Metrics of generated texts, each with one or several references.

ROUGE is computed by ``rouge-score``, and BLEU, chrF and TER by ``sacrebleu``, of the extra
``metrics``. Both are imported where they are used.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from zoo.errors import UsageError
from zoo.metrics.base import Metric
from zoo.metrics.squad import answer_scores
from zoo.overrides import override

Floats = NDArray[np.float64]

# Numbers of references that vary, in a signature of sacrebleu.
VARIABLE = -1


def require_references(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Check that each text has a reference.

    Raises:
        UsageError: there are fewer or more lists of references than texts, or one is empty.
    """
    if len(predictions) != len(references):
        raise UsageError(
            f"there are {len(predictions):,} texts and references for {len(references):,}",
            "give each text its references",
        )
    for number, texts in enumerate(references):
        if not texts:
            raise UsageError(f"text {number + 1} has no reference", "give each text one or more")


def require_library(module: str, remedy: str) -> None:
    """Check that a library of the extra ``metrics`` is installed, without importing it."""
    if find_spec(module) is None:
        raise UsageError(f"{module} is not installed", remedy)


class SquadExactMatch(Metric):
    """Whether a text equals a reference, as in the evaluation script of SQuAD 2.0.

    Case, punctuation, articles and white space do not count. The value is from 0 to 1.
    """

    @override
    def statistics(self, predictions: Any, references: Any) -> Floats:
        return _squad_scores(predictions, references)[:, :1]

    @override
    def value(self, statistics: Floats) -> float:
        return float(statistics.mean())


class SquadF1(Metric):
    """F1 of the words of a text and of the best reference, as in the script of SQuAD 2.0."""

    @override
    def statistics(self, predictions: Any, references: Any) -> Floats:
        return _squad_scores(predictions, references)[:, 1:]

    @override
    def value(self, statistics: Floats) -> float:
        return float(statistics.mean())


def _squad_scores(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
    """Return exact match and F1 of each text, (texts, 2)."""
    require_references(predictions, references)
    scores = np.empty((len(predictions), 2))
    for number, (text, answers) in enumerate(zip(predictions, references, strict=True)):
        scores[number] = answer_scores(text, answers, unanswerable=True)
    return scores


@dataclass(frozen=True, kw_only=True)
class Rouge(Metric):
    """Mean F-measure of ROUGE (Lin 2004), from 0 to 1; of several references the best.

    The tokenizer of ``rouge-score`` reads the letters a to z and digits only, so that texts in
    other scripts have no words.

    Attributes:
        use_stemmer: whether words are compared without their endings.
    """

    rouge_type: ClassVar[str]

    use_stemmer: bool = False

    def __post_init__(self) -> None:
        """Check that the library is installed."""
        require_library("rouge_score", "pip install rouge-score")

    @cached_property
    def scorer(self) -> Any:
        """The scorer of the library."""
        from rouge_score.rouge_scorer import RougeScorer

        return RougeScorer([self.rouge_type], use_stemmer=self.use_stemmer)

    @override
    def statistics(self, predictions: Any, references: Any) -> Floats:
        require_references(predictions, references)
        scores = np.empty((len(predictions), 1))
        for number, (text, targets) in enumerate(zip(predictions, references, strict=True)):
            score = self.scorer.score_multi(targets, text)[self.rouge_type]
            scores[number] = score.fmeasure
        return scores

    @override
    def value(self, statistics: Floats) -> float:
        return float(statistics.mean())

    @override
    def signature(self, references: Any) -> str:
        stemmer = "yes" if self.use_stemmer else "no"
        return f"type:{self.rouge_type}|stemmer:{stemmer}|rouge-score:{version('rouge-score')}"


class Rouge1(Rouge):
    """ROUGE of single words."""

    rouge_type: ClassVar[str] = "rouge1"


class Rouge2(Rouge):
    """ROUGE of pairs of words."""

    rouge_type: ClassVar[str] = "rouge2"


class RougeL(Rouge):
    """ROUGE of the longest common subsequence."""

    rouge_type: ClassVar[str] = "rougeL"


class RougeLsum(Rouge):
    """ROUGE of the longest common subsequences of sentences, which are lines of a text."""

    rouge_type: ClassVar[str] = "rougeLsum"


@dataclass(frozen=True, kw_only=True)
class SacreMetric(Metric):
    """A metric of ``sacrebleu`` (Post 2018), from sums over the corpus; from 0 to 100.

    Fields are arguments of the library's class.
    """

    class_name: ClassVar[str]
    counts: ClassVar[bool] = True  # Whether statistics are whole numbers.

    def __post_init__(self) -> None:
        """Check that the library is installed, and the settings."""
        require_library("sacrebleu", "pip install sacrebleu")

    @cached_property
    def scorer(self) -> Any:
        """The metric of the library."""
        from sacrebleu import metrics

        metric_class = getattr(metrics, self.class_name)
        return metric_class(**asdict(self))

    # ``sacrebleu.significance`` computes its intervals by the same methods of the library.

    @override
    def statistics(self, predictions: Any, references: Any) -> Floats:
        require_references(predictions, references)
        most = max(map(len, references), default=0)
        # A stream has one reference of each text, or None.
        streams = []
        for number in range(most):
            stream = [texts[number] if number < len(texts) else None for texts in references]
            streams.append(stream)
        rows = self.scorer._extract_corpus_statistics(list(predictions), streams)
        return np.array(rows, np.float64)

    @override
    def value(self, statistics: Floats) -> float:
        # The library adds one row after the other, and so does ``cumsum``.
        sums = statistics.cumsum(axis=0)[-1].tolist()
        if self.counts:
            sums = [int(number) for number in sums]
        return float(self.scorer._compute_score_from_stats(sums).score)

    @override
    def signature(self, references: Any) -> str:
        numbers = {len(texts) for texts in references}
        self.scorer.num_refs = numbers.pop() if len(numbers) == 1 else VARIABLE
        return str(self.scorer.get_signature().format())


@dataclass(frozen=True, kw_only=True)
class Bleu(SacreMetric):
    """BLEU (Papineni et al. 2002)."""

    class_name: ClassVar[str] = "BLEU"

    lowercase: bool = False
    tokenize: Literal["13a", "intl", "zh", "char", "none"] = "13a"
    smooth_method: Literal["exp", "floor", "add-k", "none"] = "exp"
    smooth_value: float | None = None
    max_ngram_order: int = 4
    effective_order: bool = False

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_ngram_order <= 100:
            raise ValueError(f"max_ngram_order is {self.max_ngram_order}, not from 1 to 100")


@dataclass(frozen=True, kw_only=True)
class Chrf(SacreMetric):
    """chrF (Popović 2015); with ``word_order=2`` it is chrF++."""

    class_name: ClassVar[str] = "CHRF"

    char_order: int = 6
    word_order: int = 0
    beta: int = 2
    lowercase: bool = False
    whitespace: bool = False
    eps_smoothing: bool = False

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        ranges = {"char_order": (1, 100), "word_order": (0, 100), "beta": (1, 100)}
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} is {getattr(self, name)}, not from {low} to {high}")


@dataclass(frozen=True, kw_only=True)
class Ter(SacreMetric):
    """Translation edit rate (Snover et al. 2006); lower is better."""

    class_name: ClassVar[str] = "TER"
    counts: ClassVar[bool] = False  # The length of several references is their mean.

    normalized: bool = False
    no_punct: bool = False
    asian_support: bool = False
    case_sensitive: bool = False
