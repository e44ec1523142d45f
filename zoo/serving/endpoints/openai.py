"""OpenAI's interface: ``/v1/embeddings``, ``/v1/completions`` and ``/v1/models``."""

import base64
import itertools
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from zoo.inference.embed import Embed
from zoo.inference.generation.task import NEW_TOKENS
from zoo.serving.endpoints import Endpoint, Interface, Record
from zoo.serving.errors import InvalidRequest, RequestError
from zoo.serving.exchange import Exchange, as_texts, require_option
from zoo.serving.numbers import json_numbers
from zoo.serving.stream_turns import StreamEnd

if TYPE_CHECKING:
    from zoo.inference.generation.task import GenerationTask
    from zoo.serving.models import ServedModel

# Requests without a seed share one, so that they share batches; each text has another number.
SHARED_SEED = secrets.randbits(31)
ROW_NUMBERS = itertools.count(secrets.randbits(30))
FINISH_REASONS = {"end": "stop", "length": "length"}
# OpenAI's names of the kinds of errors, by status.
ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


def error_body(error: RequestError) -> Any:
    """Return an error as OpenAI's clients read it."""
    return {
        "error": {
            "message": error.message,
            "type": ERROR_TYPES.get(error.status, "invalid_request_error"),
            "param": error.parameter,
            "code": error.code,
        }
    }


OPENAI = Interface("OpenAI", error_body)


class EmbeddingsRequest(Record):
    """Texts to embed.

    Attributes:
        input: a text, or several.
        model: name of the model; by default the first.
        encoding_format: ``float``, or ``base64`` of float32 numbers.
        dimensions: number of leading dimensions to keep, as Matryoshka models allow.
        user: accepted, and not used.
        prompt_name: name of a prompt of the model that precedes each text.
        truncate: whether texts that are too long are cut.
    """

    input: str | list[Any]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None
    prompt_name: str | None = None
    truncate: bool | None = None


class Usage(msgspec.Struct, omit_defaults=True):
    """Number of tokens of a request."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class EmbeddingObject(msgspec.Struct, kw_only=True):
    """An embedding, as numbers or as base64."""

    object: str = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingsResponse(msgspec.Struct, kw_only=True):
    """Embeddings, in the order of the texts."""

    object: str = "list"
    data: list[EmbeddingObject]
    model: str
    usage: Usage


async def create_embeddings(exchange: Exchange, request: EmbeddingsRequest) -> EmbeddingsResponse:
    """Answer ``/v1/embeddings``."""
    model = exchange.model(request.model)
    texts = as_texts(request.input, "input")
    task = vector_task(model, dim=request.dimensions, prompt_name=request.prompt_name)
    results = await exchange.run(model, task, exchange.records(texts), truncate=request.truncate)
    data = []
    for index, result in enumerate(results):
        vector = result.added["embedding"]
        if request.encoding_format == "base64":
            numbers = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        else:
            numbers = json_numbers(vector)
        data.append(EmbeddingObject(index=index, embedding=numbers))
    usage = Usage(exchange.tokens, exchange.tokens)
    return EmbeddingsResponse(data=data, model=model.name, usage=usage)


def vector_task(model: "ServedModel", **options: Any) -> Embed:
    """Return the task of a model that has one vector a text.

    Raises:
        InvalidRequest: it has a vector for each token.
    """
    task = model.task(Embed, **options)
    assert isinstance(task, Embed), "the task is of the class that was asked for"
    if task.is_multi_vector:
        raise InvalidRequest(
            f"{model.name} has an embedding for each token; use /embed_all", parameter="model"
        )
    return task


class StreamOptions(Record):
    """What a stream has besides text.

    Attributes:
        include_usage: whether it ends with the number of tokens.
        include_obfuscation: accepted, and not used.
    """

    include_usage: bool = False
    include_obfuscation: bool = False


class CompletionRequest(Record):
    """A prompt to continue.

    Attributes:
        prompt: a text, or several.
        model: name of the model; by default the first.
        max_tokens: number of new tokens at most.
        temperature: divisor of the logits; 0 for the most likely tokens.
        top_p: total probability of the most likely tokens to sample from.
        n: number of continuations of each prompt.
        stream: whether pieces are sent as they are generated.
        stream_options: what a stream has besides text.
        stop: texts at which a continuation ends, without them.
        seed: seed of the random numbers; by default they differ from call to call.
        echo: whether the prompt precedes its continuation.
        user: accepted, and not used.
        best_of: accepted as 1.
        frequency_penalty: accepted as 0.
        presence_penalty: accepted as 0.
        logprobs: accepted as null.
        logit_bias: accepted as null.
        suffix: accepted as null.
    """

    prompt: str | list[Any]
    model: str | None = None
    max_tokens: int | None = 16
    temperature: float | None = 1.0
    top_p: float | None = 1.0
    n: int | None = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    echo: bool | None = False
    user: str | None = None
    best_of: int | None = None
    frequency_penalty: float | None = 0.0
    presence_penalty: float | None = 0.0
    logprobs: int | None = None
    logit_bias: dict[str, float] | None = None
    suffix: str | None = None


class CompletionChoice(msgspec.Struct, kw_only=True):
    """A continuation; ``finish_reason`` is ``stop``, ``length``, or null while it is generated."""

    text: str
    index: int
    logprobs: None = None
    finish_reason: str | None


class CompletionResponse(msgspec.Struct, kw_only=True):
    """Continuations, or a piece of one in a stream."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


async def create_completion(
    exchange: Exchange, request: CompletionRequest
) -> CompletionResponse | AsyncIterator[bytes]:
    """Answer ``/v1/completions``."""
    model = exchange.model(request.model)
    prompts = as_texts(request.prompt, "prompt")
    _refuse_unsupported(request)
    count = request.n or 1
    require_option(1 <= count <= 16, "n is 1 to 16", "n")
    task = _generation_task(model, request)
    records = exchange.records(prompts)
    numbers = itertools.count() if request.seed is not None else ROW_NUMBERS
    record = CompletionResponse(
        id=f"cmpl-{uuid.uuid4().hex}", created=int(time.time()), model=model.name, choices=[]
    )
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    stops = [stop for stop in stops if stop]
    if request.stream:
        require_option(
            len(records) == 1 and count == 1, "a stream has one prompt and n 1", "stream"
        )
        parts = until_stop(exchange.stream(model, task, records[0], next(numbers)), stops)
        if request.echo:
            parts = _after(prompts[0], parts)
        include_usage = bool(request.stream_options and request.stream_options.include_usage)
        return _events(model, record, parts, prompts[0], include_usage)
    repeated = [item for item in records for _ in range(count)]
    first_row = next(numbers)
    if request.seed is None:
        for _ in range(len(repeated) - 1):
            next(numbers)
    results = await exchange.run(model, task, repeated, first_row=first_row)
    completion_tokens = 0
    for index, result in enumerate(results):
        text = result.added["generated"]
        stopped = FINISH_REASONS[result.added["stopped"]]
        cut_text = _cut(text, stops)
        if len(cut_text) < len(text):
            stopped = "stop"
        completion_tokens += result.added[NEW_TOKENS]
        if request.echo:
            cut_text = result.item.record.text + cut_text
        record.choices.append(CompletionChoice(text=cut_text, index=index, finish_reason=stopped))
    prompt_tokens = exchange.tokens // count
    record.usage = Usage(prompt_tokens, prompt_tokens + completion_tokens, completion_tokens)
    return record


def _refuse_unsupported(request: CompletionRequest) -> None:
    """Refuse settings that the model would not follow."""
    require_option(request.best_of in (None, 1), "best_of is not supported", "best_of")
    require_option(not request.frequency_penalty, "only 0 is supported", "frequency_penalty")
    require_option(not request.presence_penalty, "only 0 is supported", "presence_penalty")
    require_option(request.logprobs is None, "log-probabilities: /run/score", "logprobs")
    require_option(not request.logit_bias, "logit_bias is not supported", "logit_bias")
    require_option(not request.suffix, "suffix is not supported", "suffix")


def _generation_task(model: "ServedModel", request: CompletionRequest) -> "GenerationTask":
    """Return the task that continues prompts, with the settings of a request."""
    from zoo.inference.generation.task import GenerationTask

    settings: dict[str, Any] = {"max_new_tokens": request.max_tokens or 16}
    if request.temperature == 0:
        settings["do_sample"] = False
    else:
        settings["do_sample"] = True
        settings["temperature"] = request.temperature if request.temperature is not None else 1.0
        settings["seed"] = SHARED_SEED if request.seed is None else request.seed
        if request.top_p is not None and request.top_p != 1.0:
            settings["top_p"] = request.top_p
    verb = "seq2seq" if "seq2seq" in model.checkpoint.head.tasks else "generate"
    task = model.task(verb, **settings)
    assert isinstance(task, GenerationTask), "both tasks generate text"
    return task


async def until_stop(
    parts: "AsyncIterator[str | StreamEnd]", stops: Sequence[str]
) -> "AsyncIterator[str | StreamEnd]":
    """Yield pieces of text up to the first of several texts, which is left out.

    What may be the beginning of one is held back.
    """
    if not stops:
        async for part in parts:
            yield part
        return
    longest = max(len(stop) for stop in stops)
    text = ""
    async for part in parts:
        if isinstance(part, StreamEnd):
            if text:
                yield text
            yield part
            return
        text += part
        cut_text = _cut(text, stops)
        if len(cut_text) < len(text):
            if cut_text:
                yield cut_text
            yield StreamEnd("end")
            return
        certain = len(text) - longest + 1
        if certain > 0:
            yield text[:certain]
            text = text[certain:]


def _cut(text: str, stops: Sequence[str]) -> str:
    """Return a text up to the first of several texts."""
    ends = [text.find(stop) for stop in stops]
    return text[: min((end for end in ends if end >= 0), default=len(text))]


async def _after(
    prompt: str, parts: "AsyncIterator[str | StreamEnd]"
) -> "AsyncIterator[str | StreamEnd]":
    yield prompt
    async for part in parts:
        yield part


async def _events(
    model: "ServedModel",
    record: CompletionResponse,
    parts: "AsyncIterator[str | StreamEnd]",
    prompt: str,
    include_usage: bool,
) -> AsyncIterator[bytes]:
    """Yield pieces of a continuation as server-sent events."""
    new_tokens = 0
    async for part in parts:
        if isinstance(part, StreamEnd):
            reason = FINISH_REASONS.get(part.stopped, "stop")
            record.choices = [CompletionChoice(text="", index=0, finish_reason=reason)]
            new_tokens = part.new_tokens
        else:
            record.choices = [CompletionChoice(text=part, index=0, finish_reason=None)]
        yield event(record)
    if include_usage:
        prompt_tokens = count_tokens(model, prompt)
        record.choices = []
        record.usage = Usage(prompt_tokens, prompt_tokens + new_tokens, new_tokens)
        yield event(record)
    yield b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    """Return a server-sent event with a value as JSON."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def count_tokens(model: "ServedModel", text: str) -> int:
    """Return the number of tokens of a text, without special ones."""
    (encoded,) = model.model.tokenizer.encode_prompts([text], max_tokens=None)
    return len(encoded.ids)


class ModelCard(msgspec.Struct, kw_only=True):
    """A model that the server has."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "zoo"


class ModelsResponse(msgspec.Struct, kw_only=True):
    """The models that the server has."""

    object: str = "list"
    data: list[ModelCard]


async def find_model(exchange: Exchange, request: None) -> ModelCard:
    """Answer ``/v1/models/{model}``."""
    return ModelCard(id=exchange.model(exchange.path_parameters["model"]).name)


async def list_models(exchange: Exchange, request: None) -> ModelsResponse:
    """Answer ``/v1/models``."""
    return ModelsResponse(data=[ModelCard(id=model.name) for model in exchange.service.models])


ENDPOINTS = (
    Endpoint(
        "/v1/embeddings",
        "Embed texts.",
        OPENAI,
        create_embeddings,
        EmbeddingsRequest,
        EmbeddingsResponse,
    ),
    Endpoint(
        "/v1/completions",
        "Continue prompts.",
        OPENAI,
        create_completion,
        CompletionRequest,
        CompletionResponse,
    ),
    Endpoint("/v1/models", "List the models.", OPENAI, list_models, None, ModelsResponse),
    Endpoint("/v1/models/{model:path}", "Find a model.", OPENAI, find_model, None, ModelCard),
)
