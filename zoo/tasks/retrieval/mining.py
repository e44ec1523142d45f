"""Hard negatives: texts that are close to a query, without being its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from zoo.errors import UsageError
from zoo.tasks.retrieval.scoring import Ranker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

OutputFormat = Literal["triplet", "n-tuple", "labeled-pair", "labeled-list"]
CANDIDATES = 10  # for each negative, where some may be discarded


@dataclass(frozen=True, kw_only=True)
class MiningOptions:
    """Which texts become negatives, as in ``mine_hard_negatives`` of sentence-transformers."""

    num_negatives: int = 3  # number of negatives of a query
    range_min: int = 0  # number of the closest texts to skip
    # rank of the last text that may become a negative; by default, ranks for the negatives and,
    # if scores or margins discard some, ten times as many
    range_max: int | None = None
    max_score: float | None = None  # largest score of a negative
    min_score: float | None = None  # smallest score of a negative
    # least difference between the score of the query's text and a negative's
    absolute_margin: float | None = None
    # the same as a fraction of the magnitude of the text's score
    relative_margin: float | None = None
    # the closest texts, or random ones, of those that remain
    sampling_strategy: Literal["top", "random"] = "top"
    seed: int = 0  # seed of the random ones

    def last_rank(self, positives: int) -> int:
        """Return the rank of the last candidate, for queries of at most some texts of their own."""
        discards = (self.absolute_margin, self.relative_margin, self.max_score)
        wanted = self.num_negatives
        wanted *= CANDIDATES if any(value is not None for value in discards) else 1
        last = self.range_min + wanted + positives if self.range_max is None else self.range_max
        if last - self.range_min < self.num_negatives:
            raise UsageError(
                f"there are {max(last - self.range_min, 0)} ranks for {self.num_negatives} "
                f"negatives after the first {self.range_min}",
                "raise --range-max, or lower --range-min or --num-negatives",
            )
        return last


@dataclass(frozen=True)
class Mined:
    """A query, one of its own texts, and the negatives that were found."""

    query: str
    positive: str
    negatives: Sequence[str]
    scores: Sequence[float]  # of the text and of each negative


def mine_hard_negatives(
    ranker: Ranker,
    pairs: Sequence[tuple[str, str]],
    options: MiningOptions,
    *,
    corpus: Sequence[str] = (),
    scorer: Ranker | None = None,
) -> Iterator[Mined]:
    """Yield the negatives of each pair of a query and its text."""
    # Negatives come from the texts of all pairs and from ``corpus``; texts of the same query are
    # never among them. Margins are to the query's own text with the lowest score. A ``scorer``,
    # such as a cross-encoder, gives the closest texts other scores before any is discarded.
    import numpy as np

    texts = list(dict.fromkeys([*corpus, *(text for _, text in pairs)]))
    numbers = {text: number for number, text in enumerate(texts)}
    own: dict[str, dict[int, None]] = {}
    for query, text in pairs:
        own.setdefault(query, {})[numbers[text]] = None
    positives = max(map(len, own.values()))
    last = options.last_rank(positives)
    rng = np.random.default_rng(options.seed)
    for query, (scores, _) in zip(own, ranker.search(list(own), texts), strict=True):
        mine = list(own[query])
        # as many of the closest as may be needed after the query's own are left out
        found = np.argsort(-scores, kind="stable")[: last + positives]
        candidates = found[~np.isin(found, mine)]
        values = scores[candidates]
        reference = scores[mine]
        if scorer is not None:
            chosen = [texts[number] for number in (*mine, *candidates)]
            ((again, _),) = scorer.rank([query], [chosen])
            reference = again[: len(mine)]
            values = again[len(mine) :]
        kept = _keep(values, float(reference.min()), options)
        order = np.argsort(-np.where(kept, values, -np.inf), kind="stable")[: int(kept.sum())]
        order = order[options.range_min : last]
        if options.sampling_strategy == "random" and len(order) > options.num_negatives:
            order = order[np.sort(rng.permutation(len(order))[: options.num_negatives])]
        order = order[: options.num_negatives]
        negatives = [texts[number] for number in candidates[order]]
        for number, score in zip(mine, reference.tolist(), strict=True):
            yield Mined(query, texts[number], negatives, [score, *values[order].tolist()])


def _keep(scores: "Floats", positive: float, options: MiningOptions) -> "NDArray[np.bool_]":
    """Return which candidates may be negatives, next to the score of the query's own text."""
    import numpy as np

    kept = np.ones(len(scores), bool)
    if options.absolute_margin is not None:
        kept &= scores + options.absolute_margin <= positive
    if options.relative_margin is not None:
        kept &= scores <= positive - abs(positive) * options.relative_margin
    if options.max_score is not None:
        kept &= scores <= options.max_score
    if options.min_score is not None:
        kept &= scores >= options.min_score
    return kept


def mined_rows(
    mined: Sequence[Mined],
    form: OutputFormat,
    columns: tuple[str, str],
    num_negatives: int,
    *,
    scores: bool = False,
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table, in the formats of sentence-transformers."""
    # A ``triplet`` has a column ``negative``; an ``n-tuple`` has ``negative_1`` and so on, without
    # the pairs that have too few; a ``labeled-pair`` has a text and its ``label``, and a
    # ``labeled-list`` lists of them, as ``zoo finetune --task reranker`` reads them. ``scores``
    # adds or, for labels, replaces them with the model's.
    query, text = columns
    before = ""
    for item in mined:
        first = item.scores[0]
        rest = item.scores[1:]
        pair = {query: item.query, text: item.positive}
        found = list(zip(item.negatives, rest, strict=True))
        if form == "triplet":
            for negative, score in found:
                both = {"scores": [first, score]} if scores else {}
                yield {**pair, "negative": negative, **both}
        elif form == "n-tuple" and len(found) == num_negatives:
            named = {f"negative_{k}": value for k, value in enumerate(item.negatives, 1)}
            yield {**pair, **named, **({"scores": list(item.scores)} if scores else {})}
        elif form == "labeled-pair":
            yield {**pair, **({"score": first} if scores else {"label": 1})}
            # the texts of a query follow each other, and have the same negatives
            for negative, score in found if item.query != before else ():
                label = {"score": score} if scores else {"label": 0}
                yield {query: item.query, text: negative, **label}
            before = item.query
        elif form == "labeled-list" and found:
            labels = [1, *[0] * len(found)]
            values = {"scores": list(item.scores)} if scores else {"labels": labels}
            yield {query: item.query, text: [item.positive, *item.negatives], **values}
