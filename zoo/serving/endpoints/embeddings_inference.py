"""The interface of text-embeddings-inference: ``/embed``, ``/rerank``, ``/predict`` and others."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
import numpy as np

from zoo.errors import UsageError
from zoo.inference.embed import Embed
from zoo.inference.processing.numbers import short_floats
from zoo.inference.text_scores import TextScores
from zoo.overrides import override
from zoo.sentence_models.modules import PoolingModule
from zoo.sentence_models.pooling import Pooling
from zoo.serving.endpoints import Endpoint, Interface, Record
from zoo.serving.endpoints.openai import vector_task
from zoo.serving.errors import InvalidRequest, ModelFailure, RequestError
from zoo.serving.exchange import Exchange, as_texts, require_option
from zoo.serving.http import convert_value
from zoo.serving.numbers import json_numbers
from zoo.serving.scores import rank, score_texts
from zoo.tasks.features.predict import ExtractFeatures
from zoo.tasks.reranker.rerank import pair_scorer_class
from zoo.version import __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.serving.models import ServedModel
    from zoo.tokenizers.info import Side

# Names of the kinds of errors there, by status; those of other statuses are "Validation".
ERROR_TYPES = {
    429: "Overloaded",
    503: "Unhealthy",
}
Direction = Literal["Left", "Right", "left", "right"]


def error_body(error: RequestError) -> Any:
    """Return an error as text-embeddings-inference's clients read it."""
    # A failing model has one message there (``router/src/http/server.rs``), whatever the reason.
    if isinstance(error, ModelFailure):
        return {"error": "Inference failed", "error_type": "Backend"}
    return {
        "error": error.message,
        "error_type": ERROR_TYPES.get(error.status, "Validation"),
    }


EMBEDDINGS_INFERENCE = Interface(
    "text-embeddings-inference", error_body, invalid_status=422, failure_status=424
)


class TextsRequest(Record):
    """Texts.

    Attributes:
        inputs: a text, or several.
        model: name of the model; by default the first.
        truncate: whether texts that are too long are cut.
        truncation_direction: the side on which they are cut; by default the model's.
        prompt_name: name of a prompt of the model that precedes each text.
    """

    inputs: str | list[Any]
    model: str | None = None
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None


class EmbedRequest(TextsRequest):
    """Texts to embed.

    Attributes:
        normalize: whether embeddings are scaled to unit length.
        dimensions: number of leading dimensions to keep, as Matryoshka models allow.
    """

    normalize: bool | None = True
    dimensions: int | None = None


async def embed(exchange: Exchange, request: EmbedRequest) -> list[list[float]]:
    """Answer ``/embed``."""
    model = exchange.model(request.model)
    task = vector_task(
        model,
        truncation_side=side_of(request.truncation_direction),
        dim=request.dimensions,
        prompt_name=request.prompt_name,
        normalize=bool(request.normalize),
    )
    records = exchange.records(as_texts(request.inputs, "inputs"))
    results = await exchange.run(model, task, records, truncate=request.truncate)
    return [json_numbers(result.added["embedding"]) for result in results]


async def embed_all(exchange: Exchange, request: TextsRequest) -> bytes:
    """Answer ``/embed_all``: a vector for each token.

    A model of late interaction gives the vectors that it compares, others their last hidden states.
    """
    model = exchange.model(request.model)
    side = side_of(request.truncation_direction)
    pooling = model.checkpoint.model.pooling or Pooling()
    is_multi_vector = pooling.model_type == "MultiVectorEncoder"
    if is_multi_vector:
        task = model.task(Embed, truncation_side=side, prompt_name=request.prompt_name)
    else:
        require_option(request.prompt_name is None, "prompts are for embeddings", "prompt_name")
        task = model.task(ExtractFeatures, truncation_side=side)
    records = exchange.records(as_texts(request.inputs, "inputs"))
    results = await exchange.run(model, task, records, truncate=request.truncate)
    arrays = []
    for result in results:
        if is_multi_vector:
            arrays.append(result.added["embedding"])
        else:
            arrays += result.added["layers"].values()
    return await asyncio.to_thread(_encode_arrays, arrays)


def _encode_arrays(arrays: "Sequence[NDArray[Any]]") -> bytes:
    return msgspec.json.encode([json_numbers(array) for array in arrays])


class SparseValue(msgspec.Struct):
    """A weight, with the number of its token in the vocabulary."""

    index: int
    value: float


async def embed_sparse(exchange: Exchange, request: TextsRequest) -> list[list[SparseValue]]:
    """Answer ``/embed_sparse``: the weights of a sparse encoder, without zeros."""
    model = exchange.model(request.model)
    side = side_of(request.truncation_direction)
    task = model.task(Embed, truncation_side=side, prompt_name=request.prompt_name)
    assert isinstance(task, Embed), "the task is of the class that was asked for"
    if not task.is_sparse:
        raise InvalidRequest(f"{model.name} is not a sparse encoder; use /embed", parameter="model")
    records = exchange.records(as_texts(request.inputs, "inputs"))
    results = await exchange.run(model, task, records, truncate=request.truncate)
    answer = []
    for result in results:
        vector = result.added["embedding"]
        present = np.flatnonzero(vector)
        weights = short_floats(vector[present])
        pairs = zip(present.tolist(), weights, strict=True)
        answer.append([SparseValue(index, value) for index, value in pairs])
    return answer


class RerankRequest(Record):
    """Texts to sort by their relevance to a query.

    Attributes:
        query: the query.
        texts: the texts.
        model: name of the model; by default the first.
        raw_scores: return logits, before the model's activation.
        return_text: repeat the texts.
        truncate: whether pairs that are too long are cut.
        truncation_direction: the side on which they are cut; by default the model's.
    """

    query: str
    texts: list[str]
    model: str | None = None
    raw_scores: bool | None = False
    return_text: bool | None = False
    truncate: bool | None = None
    truncation_direction: Direction | None = None


class RankedText(msgspec.Struct, omit_defaults=True):
    """A text, by its number in the request, with its score."""

    index: int
    score: float
    text: str | None = None


async def rerank(exchange: Exchange, request: RerankRequest) -> list[RankedText]:
    """Answer ``/rerank``."""
    model = exchange.model(request.model)
    scores = await score_texts(
        exchange,
        model,
        request.query,
        request.texts,
        truncate=request.truncate,
        raw_scores=bool(request.raw_scores),
        truncation_side=side_of(request.truncation_direction),
    )
    answer = []
    for index in rank(scores):
        text = request.texts[index] if request.return_text else None
        answer.append(RankedText(index, scores[index], text))
    return answer


class PredictParameters(Record):
    """Settings of huggingface_hub's ``InferenceClient.text_classification``.

    Attributes:
        function_to_apply: ``none`` for logits; by default the model's own function.
        top_k: number of labels to return; by default all.
    """

    function_to_apply: Literal["none"] | None = None
    top_k: int | None = None


class PredictRequest(Record):
    """Texts, or pairs of texts, to classify.

    Attributes:
        inputs: a text; a pair of texts, ``["a", "b"]``; or a list of lists of one text or two.
        model: name of the model; by default the first.
        raw_scores: return logits in place of probabilities.
        truncate: whether texts that are too long are cut.
        truncation_direction: the side on which they are cut; by default the model's.
        parameters: further settings.
    """

    inputs: str | list[Any]
    model: str | None = None
    raw_scores: bool | None = False
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    parameters: PredictParameters | None = None


class Prediction(msgspec.Struct):
    """A label with its probability, or logit."""

    score: float
    label: str


class TextLogits(TextScores):
    """The logit of each label."""

    output_keys: ClassVar[tuple[str, ...]] = ("scores",)

    @override
    def result(self, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        labels = self.checkpoint.config.labels
        return {"scores": dict(zip(labels, logits.tolist(), strict=True))}


async def predict(
    exchange: Exchange, request: PredictRequest
) -> list[Prediction] | list[list[Prediction]]:
    """Answer ``/predict``. The most probable label is the first."""
    model = exchange.model(request.model)
    is_single, texts = _predict_inputs(request.inputs)
    parameters = request.parameters or PredictParameters()
    top_k = parameters.top_k
    require_option(top_k is None or top_k > 0, "top_k is 1 or more", "parameters.top_k")
    raw_scores = request.raw_scores or parameters.function_to_apply == "none"
    try:
        TextScores.require_head(model.checkpoint)
        task = model.task(
            TextLogits if raw_scores else TextScores,
            truncation_side=side_of(request.truncation_direction),
        )
    except UsageError as error:
        raise InvalidRequest(str(error), parameter="model") from error
    records = exchange.records(texts)
    results = await exchange.run(model, task, records, truncate=request.truncate)
    answer = []
    for result in results:
        predictions = []
        for label, score in _label_scores(model, result.added).items():
            predictions.append(Prediction(float(score), label))
        predictions.sort(key=lambda prediction: -prediction.score)
        answer.append(predictions[:top_k])
    return answer[0] if is_single else answer


def _predict_inputs(inputs: str | list[Any]) -> tuple[bool, list[str | tuple[str, str]]]:
    """Return whether there is one input, and the texts and pairs of all."""
    if isinstance(inputs, str):
        return True, [inputs]
    if inputs and all(isinstance(item, str) for item in inputs):
        return True, [_one_or_two(inputs)]
    return False, [_one_or_two([item] if isinstance(item, str) else item) for item in inputs]


def _one_or_two(texts: Any) -> str | tuple[str, str]:
    is_list = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    if is_list and len(texts) == 1:
        text: str = texts[0]
        return text
    if is_list and len(texts) == 2:
        return texts[0], texts[1]
    raise InvalidRequest(
        "each of inputs is a list of one text or two; one pair alone is a list of two texts",
        parameter="inputs",
    )


def _label_scores(model: "ServedModel", added: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the score of each label from a result of ``TextScores``."""
    scores = added.get("scores")
    if isinstance(scores, Mapping):
        return scores
    labels = model.checkpoint.config.labels
    if scores is None:
        scores = [added["score"]]
    return dict(zip(labels, scores, strict=True))


class TokenizeRequest(Record):
    """Texts to cut into tokens.

    Attributes:
        inputs: a text, or several.
        model: name of the model; by default the first.
        add_special_tokens: whether the tokens around a text are part of the answer.
        prompt_name: name of a prompt of the model that precedes each text.
    """

    inputs: str | list[Any]
    model: str | None = None
    add_special_tokens: bool = True
    prompt_name: str | None = None


class Token(msgspec.Struct):
    """A token; special ones have no place in the text."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


async def tokenize(exchange: Exchange, request: TokenizeRequest) -> list[list[Token]]:
    """Answer ``/tokenize``."""
    model = exchange.model(request.model)
    texts = as_texts(request.inputs, "inputs")
    exchange.records(texts)
    prompt = ""
    if request.prompt_name is not None:
        pooling = model.checkpoint.model.pooling or Pooling()
        prompt = pooling.prompt(request.prompt_name)
    prompted_texts = [prompt + text for text in texts]
    return await asyncio.to_thread(_tokenize, model, prompted_texts, request.add_special_tokens)


def _tokenize(
    model: "ServedModel", texts: Sequence[str], add_special_tokens: bool
) -> list[list[Token]]:
    answer = []
    for encoded in model.model.tokenizer.encode(texts, max_tokens=None):
        tokens = []
        rows = zip(encoded.ids, encoded.tokens, encoded.special, encoded.offsets, strict=True)
        for number, text, special, (start, stop) in rows:
            if special and not add_special_tokens:
                continue
            if special:
                tokens.append(Token(number, text, True, None, None))
            else:
                tokens.append(Token(number, text, False, start, stop))
        answer.append(tokens)
    return answer


async def info(exchange: Exchange, request: None) -> dict[str, Any]:
    """Answer ``/info``: what the default model is, and the limits of requests."""
    model = exchange.service.models.default
    limits = exchange.service.limits
    checkpoint = model.checkpoint
    return {
        "model_id": model.name,
        "model_dtype": model.model.session.dtype,
        "model_type": _model_type(model),
        "max_input_length": model.task(_any_text_task(model)).max_tokens,
        "max_batch_tokens": limits.max_batch_tokens,
        "max_client_batch_size": limits.max_texts,
        "auto_truncate": limits.truncate,
        "family": checkpoint.family.name,
        "backend": model.model.session.backend,
        "models": [served.name for served in exchange.service.models],
        "version": __version__,
    }


def _any_text_task(model: "ServedModel") -> Any:
    """Return a task that the model has, for the length of its texts."""
    tasks = model.checkpoint.head.tasks
    return tasks[0] if tasks else Embed


def _model_type(model: "ServedModel") -> dict[str, Any]:
    """Return the kind of a model, as text-embeddings-inference names it."""
    checkpoint = model.checkpoint
    if "classify" in checkpoint.head.tasks:
        labels = dict(enumerate(checkpoint.config.labels))
        numbers = {label: number for number, label in labels.items()}
        type_name = "reranker" if len(labels) == 1 else "classifier"
        return {type_name: {"id2label": labels, "label2id": numbers}}
    try:
        if pair_scorer_class(checkpoint) is not None:
            return {"reranker": {}}
    except UsageError:
        pass
    pooling = checkpoint.model.pooling or Pooling()
    return {"embedding": {"pooling": _pooling_name(pooling)}}


def _pooling_name(pooling: Pooling) -> str:
    """Return the name of a pooling, as text-embeddings-inference names it where it has it."""
    if pooling.model_type != "SentenceTransformer":
        return "splade" if pooling.model_type == "SparseEncoder" else "none"
    modes: list[str] = []
    for step in pooling.steps:
        if isinstance(step, PoolingModule):
            modes += step.modes
    return "+".join(modes) or "none"


def side_of(direction: Direction | None) -> "Side | None":
    """Return the side on which texts are cut; ``None`` for the model's."""
    if direction is None:
        return None
    return "left" if direction.lower() == "left" else "right"


async def default_endpoint(exchange: Exchange, request: dict[str, Any]) -> Any:
    """Answer ``/`` by the kind of the model: rerank, predict, embed_sparse or embed."""
    name = request.get("model")
    model = exchange.model(name if isinstance(name, str) else None)
    if "query" in request:
        return await rerank(exchange, convert_value(request, RerankRequest))
    if "classify" in model.checkpoint.head.tasks:
        answer = await predict(exchange, convert_value(request, PredictRequest))
        is_flat = bool(answer) and isinstance(answer[0], Prediction)
        return [answer] if is_flat else answer
    pooling = model.checkpoint.model.pooling
    if pooling is not None and pooling.model_type == "SparseEncoder":
        return await embed_sparse(exchange, convert_value(request, TextsRequest))
    return await embed(exchange, convert_value(request, EmbedRequest))


def _endpoint(path: str, summary: str, answer: Any, request: Any, response: Any) -> Endpoint:
    return Endpoint(path, summary, EMBEDDINGS_INFERENCE, answer, request, response)


ENDPOINTS = (
    _endpoint("/embed", "Embed texts.", embed, EmbedRequest, list[list[float]]),
    _endpoint(
        "/embed_all",
        "Return a vector for each token.",
        embed_all,
        TextsRequest,
        list[list[list[float]]],
    ),
    _endpoint(
        "/embed_sparse",
        "Return the weights of a sparse encoder.",
        embed_sparse,
        TextsRequest,
        list[list[SparseValue]],
    ),
    _endpoint("/rerank", "Sort texts by a query.", rerank, RerankRequest, list[RankedText]),
    _endpoint(
        "/predict",
        "Classify texts or pairs of texts.",
        predict,
        PredictRequest,
        list[Prediction | list[Prediction]],
    ),
    _endpoint("/tokenize", "Cut texts into tokens.", tokenize, TokenizeRequest, list[list[Token]]),
    _endpoint("/info", "Describe the default model.", info, None, dict[str, Any]),
    _endpoint("/", "Embed, classify or rank, by the model.", default_endpoint, dict, Any),
)
