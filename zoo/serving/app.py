"""The application: routes, keys, limits, errors, health and metrics, for uvicorn."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from zoo.serving.admission import Admission
from zoo.serving.endpoints import Endpoint, Interface, cohere, embeddings_inference, openai, tasks
from zoo.serving.engine import Engine
from zoo.serving.errors import (
    MethodNotAllowed,
    ModelFailure,
    NotFound,
    RequestError,
    request_error,
)
from zoo.serving.exchange import Exchange, Limits, Service
from zoo.serving.http import (
    ClosingResponse,
    parse_body,
    read_body,
    require_key,
    require_local_host,
)
from zoo.serving.metrics import CONTENT_TYPE_LATEST, Metrics
from zoo.serving.models import ModelSettings, ModelTable
from zoo.serving.openapi import describe, page
from zoo.serving.protocol import CONNECTION, LimitedProtocol

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

LOG = logging.getLogger("zoo.serving")
ENDPOINTS = (
    *openai.ENDPOINTS,
    *embeddings_inference.ENDPOINTS,
    *cohere.ENDPOINTS,
    *tasks.ENDPOINTS,
)
PART_BYTES = 1 << 16  # Largest part of an answer that is sent at once.
CLIENT_CLOSED = 499  # status in logs and metrics for clients that have left


class ServerSettings(msgspec.Struct, kw_only=True):
    """What a server serves, and how.

    Attributes:
        models: the models, of which the first is the default.
        load_options: backend, device, dtype, threads and others of ``zoo.load``.
        max_seq_len: length that texts are cut at.
        api_keys: keys that requests may have; none if no key is needed.
        is_local: whether requests have to name this machine as their host.
        limits: limits on requests.
        metrics_folder: where the processes of a server keep their counters; ``None`` for one.
    """

    models: list[ModelSettings]
    load_options: dict[str, Any]
    max_seq_len: int | None
    api_keys: list[str]
    is_local: bool
    limits: Limits
    metrics_folder: str | None = None


def create_app(settings: ServerSettings, models: ModelTable) -> Starlette:
    """Return the application of models."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        engine = Engine(settings.limits.max_batch_tokens)
        engine.start()
        app.state.service = Service(
            models=models,
            engine=engine,
            admission=Admission(settings.limits.max_waiting_bytes),
            metrics=Metrics(settings.metrics_folder),
            limits=settings.limits,
        )
        yield
        await engine.close()

    gate = _Gate(settings.api_keys, settings.is_local)
    routes = [Route(item.path, _Handler(item, gate), methods=[item.method]) for item in ENDPOINTS]
    routes += [
        Route("/health", _health, methods=["GET"]),
        Route("/ready", _ready, methods=["GET"]),
        Route("/metrics", gate.guard(_metrics), methods=["GET"]),
        Route("/openapi.json", gate.guard(_openapi), methods=["GET"]),
        Route("/docs", gate.guard(_docs), methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _unexpected_error},
    )
    app.router.redirect_slashes = False  # A redirect would name the host of the request.
    return app


class _Gate:
    """Checks who may send requests.

    Args:
        keys: the API keys.
        is_local: whether the host has to be this machine.
    """

    def __init__(self, keys: Sequence[str], is_local: bool) -> None:
        self.keys = tuple(keys)
        self.is_local = is_local

    def check(self, request: Request) -> None:
        """Check the origin and the key of a request; raises ``RequestError``."""
        if self.is_local:
            require_local_host(request)
        require_key(request, self.keys)

    def guard(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a function that answers requests that are allowed."""

        async def guarded(request: Request) -> Response:
            try:
                self.check(request)
            except RequestError as error:
                return _error_response(error, tasks.RUN)
            return await answer(request)

        return guarded


class _Handler:
    """Answers the requests of an endpoint."""

    def __init__(self, endpoint: Endpoint, gate: _Gate) -> None:
        self.endpoint = endpoint
        self.gate = gate

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        request = Request(scope, receive)
        service: Service = request.app.state.service
        connection: LimitedProtocol = scope[CONNECTION]
        started = time.monotonic()
        status = CLIENT_CLOSED
        exchange: Exchange | None = None
        try:
            with service.admission.request() as reservation:
                _set_gauges(service)
                exchange = Exchange(
                    service,
                    _client(request, has_keys=bool(self.gate.keys)),
                    reservation,
                    {name: str(value) for name, value in request.path_params.items()},
                )
                response = await self._response(request, exchange)
                if response is not None:
                    status = response.status_code
                    limited_send = _limited(send, connection, service.limits.send_seconds)
                    await response(scope, receive, limited_send)
        except TimeoutError:  # The client does not read.
            status = CLIENT_CLOSED
            connection.transport.abort()
        finally:
            _set_gauges(service)
            self._record(service, exchange, status, time.monotonic() - started)

    async def _response(self, request: Request, exchange: Exchange) -> Response | None:
        """Return the response to a request; ``None`` if its client has left."""
        try:
            self.gate.check(request)
            body = await self._body(request, exchange)
            answer = await _unless_disconnected(
                request.scope[CONNECTION], self.endpoint.answer(exchange, body)
            )
        except (_Disconnected, ClientDisconnect):
            return None
        except Exception as error:
            refusal = request_error(error)
            refusal.message = _without_paths(refusal.message, exchange.service)
            if isinstance(refusal, ModelFailure):
                LOG.error("a request has failed", extra={"error": type(error).__name__})
            return _error_response(refusal, self.endpoint.interface)
        if isinstance(answer, bytes):
            return Response(answer, media_type="application/json")
        if isinstance(answer, AsyncIterator):
            events = _with_errors(answer, self.endpoint.interface)
            if request.scope["http_version"] == "1.0":  # It has no chunks.
                return await self._collected(request, events)
            headers = {"Cache-Control": "no-cache"}
            return StreamingResponse(events, headers=headers, media_type="text/event-stream")
        return Response(msgspec.json.encode(answer), media_type="application/json")

    async def _collected(self, request: Request, events: AsyncIterator[bytes]) -> Response | None:
        """Return all events in one response; ``None`` if the client has left."""

        async def join() -> bytes:
            content = bytearray()
            async for event in events:
                content += event
            return bytes(content)

        try:
            content = await _unless_disconnected(request.scope[CONNECTION], join())
        except _Disconnected:
            return None
        return Response(content, media_type="text/event-stream")

    async def _body(self, request: Request, exchange: Exchange) -> Any:
        if self.endpoint.request is None:
            return None
        limits = exchange.service.limits
        content = await read_body(
            request,
            exchange.reservation,
            max_bytes=limits.max_body_bytes,
            seconds=limits.body_seconds,
        )
        return parse_body(content, self.endpoint.request)

    def _record(
        self, service: Service, exchange: Exchange | None, status: int, seconds: float
    ) -> None:
        path = self.endpoint.path
        service.metrics.count_request(path, status, seconds)
        fields: dict[str, Any] = {"path": path, "status": status, "seconds": round(seconds, 6)}
        if exchange is not None:
            fields["model"] = exchange.model_name
            fields["texts"] = exchange.texts
            fields["tokens"] = exchange.tokens
        LOG.info("request", extra=fields)


class _Disconnected(Exception):
    """The client has closed the connection."""


async def _unless_disconnected(
    connection: LimitedProtocol, answer: Coroutine[Any, Any, Any]
) -> Any:
    """Return an answer; if the client leaves before, cancel its work.

    Raises:
        _Disconnected: the client has left.
    """
    if connection.transport.is_closing():
        answer.close()
        raise _Disconnected
    task = asyncio.current_task()
    assert task is not None, "a request is answered in a task"
    has_left = False

    def leave() -> None:
        nonlocal has_left
        has_left = True
        task.cancel()

    # A connection that is not read, since its last body was large, does not show its end.
    connection.flow.resume_reading()
    connection.on_lost = leave
    try:
        return await answer
    except asyncio.CancelledError:
        # The server cancels tasks, too.
        if has_left and task.uncancel() == 0:
            raise _Disconnected from None
        raise
    finally:
        connection.on_lost = None


async def _with_errors(events: AsyncIterator[bytes], interface: Interface) -> AsyncIterator[bytes]:
    """Yield server-sent events, and an error as the last one."""
    try:
        async for event in events:
            yield event
    except Exception as error:
        yield openai.event(interface.error_body(request_error(error)))


def _without_paths(message: str, service: Service) -> str:
    """Return a message with the names of models in place of their directories."""
    for model in service.models:
        message = message.replace(str(model.checkpoint.path), model.name)
    return message


def _limited(send: "Send", connection: LimitedProtocol, seconds: float) -> "Send":
    """Return ``send`` with a time in which each part of an answer has to be read."""

    async def limited(message: Any) -> None:
        body = message.get("body", b"")
        if len(body) <= PART_BYTES:
            if not connection.flow.write_paused:  # Sending does not wait.
                await send(message)
                return
            async with asyncio.timeout(seconds):
                await send(message)
            return
        for start in range(0, len(body), PART_BYTES):
            part = {**message, "body": body[start : start + PART_BYTES]}
            is_last = start + PART_BYTES >= len(body)
            part["more_body"] = message.get("more_body", False) or not is_last
            async with asyncio.timeout(seconds):
                await send(part)

    return limited


def _client(request: Request, *, has_keys: bool) -> str:
    """Return who has sent a request: its key, if keys are checked, or its address."""
    key = request.headers.get("authorization")
    if key and has_keys:
        return key
    return request.client.host if request.client else ""


def _set_gauges(service: Service) -> None:
    service.metrics.waiting.set(service.admission.requests)
    service.metrics.waiting_bytes.set(service.admission.used_bytes)


def _error_response(error: RequestError, interface: Interface) -> Response:
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    response_class = ClosingResponse if error.ends_connection else JSONResponse
    return response_class(interface.error_body(error), interface.status(error), headers)


def _interface(path: str) -> Interface:
    """Return the interface of a path, for errors of paths that do not exist."""
    if path.startswith("/v1/"):
        return openai.OPENAI
    return cohere.COHERE if path.startswith("/v2/") else tasks.RUN


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "the handler is for these"
    refusal: RequestError = NotFound("there is no such path; see /docs")
    if error.status_code == 405:
        refusal = MethodNotAllowed("the path has another method; see /docs")
    response = _error_response(refusal, _interface(request.url.path))
    response.headers.update(error.headers or {})  # Allow, the methods that the path has.
    return response


async def _unexpected_error(request: Request, error: Exception) -> Response:
    LOG.error("a request has failed", extra={"error": type(error).__name__})
    return _error_response(request_error(error), _interface(request.url.path))


async def _health(request: Request) -> Response:
    """Answer ``/health``: whether the engine runs and every model computes."""
    service: Service = request.app.state.service
    failed = [model.name for model in service.models if not model.is_healthy]
    if not service.engine.is_alive:
        return JSONResponse({"status": "failed", "reason": "the engine has stopped"}, 503)
    if failed:
        return JSONResponse({"status": "failed", "models": failed}, 503)
    return JSONResponse({"status": "ok"})


async def _ready(request: Request) -> Response:
    """Answer ``/ready``: whether another request would be accepted."""
    service: Service = request.app.state.service
    admission = service.admission
    if not service.engine.is_alive or admission.used_bytes >= admission.max_bytes:
        return JSONResponse({"status": "busy"}, 503)
    return JSONResponse({"status": "ready"})


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    content = await asyncio.to_thread(service.metrics.write)
    return Response(content, media_type=CONTENT_TYPE_LATEST)


async def _openapi(request: Request) -> Response:
    return JSONResponse(describe(ENDPOINTS))


async def _docs(request: Request) -> Response:
    return HTMLResponse(page(ENDPOINTS))
