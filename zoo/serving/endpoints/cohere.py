"""Cohere's interface: ``/v2/rerank``."""

import uuid
from typing import Any

import msgspec

from zoo.serving.endpoints import Endpoint, Interface, Record
from zoo.serving.errors import RequestError
from zoo.serving.exchange import Exchange, require_option
from zoo.serving.scores import rank, score_texts

MAX_TOKENS_PER_DOC = 4096


def error_body(error: RequestError) -> Any:
    """Return an error as Cohere's clients read it."""
    return {"id": str(uuid.uuid4()), "message": error.message}


COHERE = Interface("Cohere", error_body)


class CohereRerankRequest(Record):
    """Texts to sort by their relevance to a query.

    Attributes:
        model: name of the model; by default the first.
        query: the query.
        documents: the texts.
        top_n: number of texts to return; by default all.
        max_tokens_per_doc: length in tokens that a text is cut at, at most the model's.
        priority: accepted, and not used.
    """

    query: str
    documents: list[str]
    model: str | None = None
    top_n: int | None = None
    max_tokens_per_doc: int = MAX_TOKENS_PER_DOC
    priority: int | None = None


class RankedDocument(msgspec.Struct):
    """A text, by its number in the request, with its score."""

    index: int
    relevance_score: float


class ApiVersion(msgspec.Struct):
    """Version of the interface."""

    version: str = "2"


class Meta(msgspec.Struct):
    """What clients expect besides the result."""

    api_version: ApiVersion


class RerankResponse(msgspec.Struct):
    """Texts with their scores, the best first."""

    id: str
    results: list[RankedDocument]
    meta: Meta


async def rerank(exchange: Exchange, request: CohereRerankRequest) -> RerankResponse:
    """Answer ``/v2/rerank``. As there, texts that are too long are cut."""
    model = exchange.model(request.model)
    require_option(request.top_n is None or request.top_n > 0, "top_n is 1 or more", "top_n")
    require_option(
        request.max_tokens_per_doc > 0, "max_tokens_per_doc is 1 or more", "max_tokens_per_doc"
    )
    max_tokens = None
    if request.max_tokens_per_doc != MAX_TOKENS_PER_DOC:
        max_tokens = request.max_tokens_per_doc
    scores = await score_texts(
        exchange,
        model,
        request.query,
        request.documents,
        truncate=True,
        max_tokens=max_tokens,
    )
    results = [RankedDocument(index, scores[index]) for index in rank(scores)[: request.top_n]]
    return RerankResponse(str(uuid.uuid4()), results, Meta(ApiVersion()))


ENDPOINTS = (
    Endpoint(
        "/v2/rerank",
        "Sort texts by their relevance to a query.",
        COHERE,
        rerank,
        CohereRerankRequest,
        RerankResponse,
    ),
)
