"""Scores of a query and texts, as ``zoo run rerank`` computes them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.inference.embed import Embed
from zoo.inference.logit_scores import LogitScores, PairLogits
from zoo.inference.processing.similarity import text_similarity
from zoo.inference.text_scores import TextScores
from zoo.sentence_models.pooling import Pooling
from zoo.serving.errors import InvalidRequest
from zoo.tasks.reranker.rerank import Rerank, pair_scorer_class
from zoo.tasks.retrieval.pair_scores import PairScores

if TYPE_CHECKING:
    from zoo.serving.exchange import Exchange
    from zoo.serving.models import ServedModel
    from zoo.tokenizers.info import Side

# The task that scores pairs -> the one that has their logits.
LOGITS: dict[type[TextScores], type[TextScores]] = {TextScores: PairScores, LogitScores: PairLogits}


async def score_texts(
    exchange: "Exchange",
    model: "ServedModel",
    query: str,
    texts: Sequence[str],
    *,
    truncate: bool | None,
    raw_scores: bool = False,
    max_tokens: int | None = None,
    truncation_side: "Side | None" = None,
) -> list[float]:
    """Return the score of each text for a query.

    A cross-encoder reads each pair. Other models compare embeddings, by their own similarity, with
    the prompts that they have for queries and documents.

    Args:
        exchange: the request.
        model: the model.
        query: the query.
        texts: the texts.
        truncate: whether texts that are too long are cut.
        raw_scores: return logits of a cross-encoder, before its activation.
        max_tokens: length that pairs, or texts, are cut at, below the model's own limit.
        truncation_side: side on which they are cut; ``None`` for the model's.

    Raises:
        InvalidRequest: the model scores no pairs.
    """
    options: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    options["truncation_side"] = truncation_side
    try:
        Rerank.require_head(model.checkpoint)
        scorer_class = pair_scorer_class(model.checkpoint)
    except UsageError as error:
        raise InvalidRequest(str(error), parameter="model") from error
    if scorer_class is not None:
        if raw_scores:
            scorer_class = LOGITS[scorer_class]
        task = model.task(scorer_class, **options)
        pairs = exchange.records([(query, text) for text in texts])
        results = await exchange.run(model, task, pairs, truncate=truncate)
        return [result.added["score"] for result in results]
    (query_result,) = await exchange.run(
        model,
        model.task(Embed, role="query", truncation_side=truncation_side),
        exchange.records([query]),
        truncate=truncate,
    )
    results = await exchange.run(
        model,
        model.task(Embed, role="document", **options),
        exchange.records(texts),
        truncate=truncate,
    )
    pooling = model.checkpoint.model.pooling or Pooling()
    query_embedding = query_result.added["embedding"]
    scores = []
    for result in results:
        similarity = pooling.similarity_fn_name
        scores.append(text_similarity(query_embedding, result.added["embedding"], similarity))
    return scores


def rank(scores: Sequence[float]) -> list[int]:
    """Return the numbers of texts, the best first; equal scores keep their order."""
    return sorted(range(len(scores)), key=lambda index: -scores[index])
