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
    # Rank of the last text that may become a negative. By default there are ranks for the
    # negatives, and ten times as many if scores or margins discard some.
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
        """Return the rank of the last candidate.

        Args:
            positives: the largest number of texts that a query has of its own.
        """
        if self.range_max is None:
            discards = (self.absolute_margin, self.relative_margin, self.max_score)
            candidates = self.num_negatives
            if any(value is not None for value in discards):
                candidates *= CANDIDATES
            last_rank = self.range_min + candidates + positives
        else:
            last_rank = self.range_max
        ranks = last_rank - self.range_min
        if ranks < self.num_negatives:
            raise UsageError(
                f"there are {max(ranks, 0)} ranks for {self.num_negatives} "
                f"negatives after the first {self.range_min}",
                "raise --range-max, or lower --range-min or --num-negatives",
            )
        return last_rank


@dataclass(frozen=True)
class Mined:
    """A query, one of its own texts, and the negatives that were found."""

    query: str
    positive: str
    negatives: Sequence[str]
    scores: Sequence[float]  # the score of the text, and of each negative


def mine_hard_negatives(
    ranker: Ranker,
    pairs: Sequence[tuple[str, str]],
    options: MiningOptions,
    *,
    corpus: Sequence[str] = (),
    scorer: Ranker | None = None,
    queries: Sequence[str] | None = None,
) -> Iterator[Mined]:
    """Yield the negatives of each pair of a query and its text.

    Negatives come from the texts of all pairs and from the corpus, but never from the texts of the
    same query. Margins are to the query's own text with the lowest score.

    Args:
        ranker: the model that finds the closest texts.
        pairs: queries with their texts.
        options: which texts become negatives.
        corpus: further texts.
        scorer: a model, such as a cross-encoder, that scores the closest texts again before any is
            discarded.
        queries: the queries of which negatives are searched, with a result for each of their texts;
            by default those of all pairs, each once.
    """
    import numpy as np

    texts = list(dict.fromkeys([*corpus, *(text for _, text in pairs)]))
    text_numbers = {text: number for number, text in enumerate(texts)}
    # The values are dictionaries, as sets that keep their order.
    query_texts: dict[str, dict[int, None]] = {}
    for query, text in pairs:
        query_texts.setdefault(query, {})[text_numbers[text]] = None
    max_positives = max(map(len, query_texts.values()))
    last_rank = options.last_rank(max_positives)
    rng = np.random.default_rng(options.seed)
    if queries is None:
        queries = list(query_texts)
    rankings = ranker.search(queries, texts)
    for query, (all_scores, _) in zip(queries, rankings, strict=True):
        positives = list(query_texts[query])
        # Some of the closest texts may be the query's own, which are left out.
        closest = np.argsort(-all_scores, kind="stable")[: last_rank + max_positives]
        candidates = closest[~np.isin(closest, positives)]
        scores = all_scores[candidates]
        positive_scores = all_scores[positives]
        if scorer is not None:
            scored_texts = [texts[number] for number in (*positives, *candidates)]
            ((new_scores, _),) = scorer.rank([query], [scored_texts])
            positive_scores = new_scores[: len(positives)]
            scores = new_scores[len(positives) :]
        is_eligible = _is_eligible(scores, float(positive_scores.min()), options)
        eligible_scores = np.where(is_eligible, scores, -np.inf)
        order = np.argsort(-eligible_scores, kind="stable")[: int(is_eligible.sum())]
        order = order[options.range_min : last_rank]
        if options.sampling_strategy == "random" and len(order) > options.num_negatives:
            order = order[np.sort(rng.permutation(len(order))[: options.num_negatives])]
        order = order[: options.num_negatives]
        negatives = [texts[number] for number in candidates[order]]
        negative_scores = scores[order].tolist()
        for number, score in zip(positives, positive_scores.tolist(), strict=True):
            yield Mined(query, texts[number], negatives, [score, *negative_scores])


def _is_eligible(
    scores: "Floats", positive_score: float, options: MiningOptions
) -> "NDArray[np.bool_]":
    """Return which candidates may be negatives, for the score of the query's own text."""
    import numpy as np

    is_eligible = np.ones(len(scores), bool)
    if options.absolute_margin is not None:
        is_eligible &= scores + options.absolute_margin <= positive_score
    if options.relative_margin is not None:
        is_eligible &= scores <= positive_score - abs(positive_score) * options.relative_margin
    if options.max_score is not None:
        is_eligible &= scores <= options.max_score
    if options.min_score is not None:
        is_eligible &= scores >= options.min_score
    return is_eligible


def mined_rows(
    mined: Sequence[Mined],
    output_format: OutputFormat,
    columns: tuple[str, str],
    num_negatives: int,
    *,
    scores: bool = False,
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table, in the formats of sentence-transformers.

    Args:
        mined: queries with their negatives; the texts of a query follow each other.
        output_format: a ``triplet`` has a column ``negative``; an ``n-tuple`` has ``negative_1``
            and so on, without the pairs that have too few; a ``labeled-pair`` has a text and its
            ``label``, and a ``labeled-list`` lists of them, as ``zoo finetune --task reranker``
            reads them.
        columns: names of the columns of queries and texts.
        num_negatives: number of negatives of an ``n-tuple``.
        scores: add the scores of the model; in the labeled formats they replace the labels.
    """
    if output_format == "triplet":
        return _triplets(mined, columns, scores=scores)
    if output_format == "n-tuple":
        return _n_tuples(mined, columns, num_negatives, scores=scores)
    if output_format == "labeled-pair":
        return _labeled_pairs(mined, columns, scores=scores)
    return _labeled_lists(mined, columns, scores=scores)


def _triplets(
    mined: Sequence[Mined], columns: tuple[str, str], *, scores: bool
) -> Iterator[Mapping[str, Any]]:
    query, text = columns
    for item in mined:
        positive_score = item.scores[0]
        for negative, score in zip(item.negatives, item.scores[1:], strict=True):
            row: dict[str, Any] = {query: item.query, text: item.positive, "negative": negative}
            if scores:
                row["scores"] = [positive_score, score]
            yield row


def _n_tuples(
    mined: Sequence[Mined], columns: tuple[str, str], num_negatives: int, *, scores: bool
) -> Iterator[Mapping[str, Any]]:
    query, text = columns
    for item in mined:
        if len(item.negatives) != num_negatives:
            continue
        row: dict[str, Any] = {query: item.query, text: item.positive}
        for number, negative in enumerate(item.negatives, 1):
            row[f"negative_{number}"] = negative
        if scores:
            row["scores"] = list(item.scores)
        yield row


def _labeled_pairs(
    mined: Sequence[Mined], columns: tuple[str, str], *, scores: bool
) -> Iterator[Mapping[str, Any]]:
    query, text = columns
    label_name = "score" if scores else "label"
    previous_query = ""
    for item in mined:
        positive_label = item.scores[0] if scores else 1
        yield {query: item.query, text: item.positive, label_name: positive_label}
        # All texts of a query have the same negatives, which are written once.
        if item.query != previous_query:
            for negative, score in zip(item.negatives, item.scores[1:], strict=True):
                label = score if scores else 0
                yield {query: item.query, text: negative, label_name: label}
        previous_query = item.query


def _labeled_lists(
    mined: Sequence[Mined], columns: tuple[str, str], *, scores: bool
) -> Iterator[Mapping[str, Any]]:
    query, text = columns
    for item in mined:
        if not item.negatives:
            continue
        row: dict[str, Any] = {query: item.query, text: [item.positive, *item.negatives]}
        if scores:
            row["scores"] = list(item.scores)
        else:
            row["labels"] = [1, *[0] * len(item.negatives)]
        yield row
