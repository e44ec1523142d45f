"""The engine: one batch for several requests, in turn, and each request with its own errors."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.inference.conftest import Small, hub_checkpoint, small
from zoo.api import Model, load
from zoo.errors import NonFiniteError, UsageError
from zoo.inference.embed import Embed
from zoo.inference.generation.task import GenerationTask
from zoo.inference.processing.records import TextExample, as_records
from zoo.serving import engine as engine_module
from zoo.serving import stream_turns
from zoo.serving.engine import Engine
from zoo.serving.errors import RequestTimeout, TooLarge
from zoo.serving.fair_queue import Job
from zoo.serving.models import ServedModel
from zoo.serving.stream_turns import ACTIVE_STREAMS, StreamEnd

__all__ = ["hub_checkpoint", "small"]
LONG = " ".join("ab" * 40)


@pytest.fixture
def served(small: Small) -> ServedModel:
    model, _ = small("BertModel")
    return ServedModel("tiny", model)


def run(work: Callable[[Engine], Awaitable[Any]], max_batch_tokens: int = 64) -> Any:
    """Return what a function returns that uses an engine."""

    async def main() -> Any:
        engine = Engine(max_batch_tokens)
        engine.start()
        try:
            return await asyncio.wait_for(work(engine), 60)
        finally:
            await engine.close()

    return asyncio.run(main())


async def vectors(
    engine: Engine, model: ServedModel, texts: list[str], client: str = "", truncate: bool = True
) -> Any:
    results = await engine.run(
        model, model.task(Embed), list(as_records(texts)), client=client, truncate=truncate
    )
    return np.stack([result.added["embedding"] for result in results])


def test_results_do_not_depend_on_what_shares_a_batch(served: ServedModel) -> None:
    requests = [["a b c"], ["b"], ["c c c c c c", "a", "a b"], ["b c"] * 40]

    async def work(engine: Engine) -> Any:
        return await asyncio.gather(*(vectors(engine, served, texts) for texts in requests))

    for texts, computed in zip(requests, run(work), strict=True):
        alone = np.stack([served.model.embed(text) for text in texts])
        np.testing.assert_allclose(computed, alone, atol=1e-6)


def test_requests_share_batches(served: ServedModel) -> None:
    calls = count_calls(served.model)

    async def work(engine: Engine) -> None:
        await asyncio.gather(*(vectors(engine, served, ["a b"]) for _ in range(32)))

    run(work, max_batch_tokens=1024)
    # The first request may have been computed before the others arrived.
    assert 1 <= len(calls) <= 3 and max(calls) >= 16


def test_texts_that_arrive_meanwhile_share_the_next_batch_of_their_length(
    served: ServedModel,
) -> None:
    calls = count_calls(served.model)
    long = "a b c a b c a b c a b c"
    later: list[asyncio.Future[Any]] = []

    async def work(engine: Engine) -> None:
        async def request(text: str) -> None:
            await vectors(engine, served, [text])
            if not later:
                # One short text was computed; long ones wait, and another one joins them.
                later.append(asyncio.ensure_future(vectors(engine, served, [long])))

        texts = ["a"] * 8 + [long] * 7
        await asyncio.gather(*(request(text) for text in texts))
        await asyncio.gather(*later)

    session: Any = served.model.session
    session.padding_cost = 1.0
    run(work, max_batch_tokens=1024)
    assert calls[-1] == 8


def test_a_short_request_does_not_wait_for_a_long_one(served: ServedModel) -> None:
    finished: list[str] = []

    async def work(engine: Engine) -> None:
        async def request(texts: list[str], client: str) -> None:
            await vectors(engine, served, texts, client)
            finished.append(client)

        long = asyncio.ensure_future(request(["a b c"] * 500, "greedy"))
        await asyncio.sleep(0)
        await asyncio.gather(request(["b"], "second"), request(["c"], "third"))
        assert not long.done()
        await long

    run(work)
    assert finished[-1] == "greedy"


def test_a_cancelled_request_is_not_computed(served: ServedModel) -> None:
    calls = count_calls(served.model)

    async def work(engine: Engine) -> None:
        request = asyncio.ensure_future(vectors(engine, served, ["a b c"] * 2000))
        while not calls:
            await asyncio.sleep(0.001)
        request.cancel()
        await vectors(engine, served, ["a"])

    run(work)
    assert sum(calls) < 1500


def test_a_text_that_is_too_long_fails_alone(served: ServedModel) -> None:
    async def work(engine: Engine) -> Any:
        return await asyncio.gather(
            vectors(engine, served, ["a"], truncate=False),
            vectors(engine, served, ["a", LONG], truncate=False),
            vectors(engine, served, [LONG], truncate=True),
            return_exceptions=True,
        )

    short, refused, cut = run(work)
    assert short.shape == cut.shape
    assert isinstance(refused, TooLarge)
    assert refused.message.startswith("text 2 is ") and LONG not in refused.message


def test_an_output_that_is_nan_fails_alone(served: ServedModel) -> None:
    session: Any = served.model.session
    broken_token = served.model.tokenizer.encode(["c"], max_tokens=None)[0].ids[1]
    with torch.no_grad():
        session.model.get_parameter("embeddings.tokens.weight")[broken_token] = torch.nan

    async def work(engine: Engine) -> list[Any]:
        requests = [vectors(engine, served, [text]) for text in ("a", "b", "c", "a b")]
        return await asyncio.gather(*requests, return_exceptions=True)

    results = run(work, max_batch_tokens=1024)
    assert isinstance(results[2], NonFiniteError)
    for text, result in zip(("a", "b", "a b"), (results[0], results[1], results[3]), strict=True):
        np.testing.assert_allclose(result[0], served.model.embed(text), atol=1e-6)
    assert served.is_healthy


def test_a_model_that_fails_on_everything_is_not_healthy(served: ServedModel) -> None:
    session: Any = served.model.session

    async def work(engine: Engine) -> None:
        await vectors(engine, served, ["a"])
        assert served.is_healthy
        parameters = dict(session.model.named_parameters())
        kept = parameters["embeddings.tokens.weight"].clone()
        parameters["embeddings.tokens.weight"].data.fill_(torch.nan)
        with pytest.raises(NonFiniteError):
            await vectors(engine, served, ["b"])
        assert not served.is_healthy
        parameters["embeddings.tokens.weight"].data.copy_(kept)
        await vectors(engine, served, ["b"])
        assert served.is_healthy

    run(work)


def test_an_invalid_text_is_an_error_of_its_request(small: Small) -> None:
    model, _ = small("BertForMaskedLM")
    served = ServedModel("tiny", model)

    async def work(engine: Engine) -> Any:
        async def fill(text: str) -> Any:
            task = served.task("fill-mask")
            records = list(as_records([text]))
            return await engine.run(served, task, records, client="", truncate=False)

        return await asyncio.gather(fill("a [MASK]"), fill("no mask"), return_exceptions=True)

    filled, refused = run(work)
    assert len(filled[0].added["masks"]) == 1
    assert isinstance(refused, UsageError)


def count_calls(model: Model) -> list[int]:
    """Return a list that gets the number of texts of each batch from now on."""
    calls: list[int] = []
    session: Any = model.session
    forward = session.run

    def counted(inputs: Any, outputs: Any = None) -> Any:
        calls.append(len(next(iter(inputs.values()))))
        return forward(inputs, outputs)

    session.run = counted
    return calls


def test_the_log_has_no_text(served: ServedModel, tmp_path: Path) -> None:
    from zoo.serving.errors import request_error

    secret = "a text that nobody may see"
    assert secret not in request_error(ValueError(secret)).message


def test_a_failing_stream_checks_the_model(models: Path) -> None:
    model = load(models / "decoder", backend="cpu")
    served = ServedModel("decoder", model)
    session: Any = model.session
    parameters = dict(session.model.named_parameters())
    record = TextExample("The cat", location="text 1")

    async def generate(engine: Engine) -> str:
        task = served.task("generate", max_new_tokens=4)
        assert isinstance(task, GenerationTask)
        text = ""
        async for piece in engine.stream(served, task, record, 0, client="a"):
            if isinstance(piece, str):
                text += piece
        return text

    async def work(engine: Engine) -> None:
        # Nothing was computed before, so that a simple text decides.
        originals = {name: tensor.clone() for name, tensor in parameters.items()}
        for tensor in parameters.values():
            tensor.data.fill_(torch.nan)
        with pytest.raises(NonFiniteError):
            await generate(engine)
        assert not served.is_healthy
        for name, tensor in parameters.items():
            tensor.data.copy_(originals[name])
        first = await generate(engine)
        assert served.is_healthy
        for tensor in parameters.values():
            tensor.data.fill_(torch.nan)
        with pytest.raises(NonFiniteError):
            await generate(engine)
        assert not served.is_healthy
        for name, tensor in parameters.items():
            tensor.data.copy_(originals[name])
        assert await generate(engine) == first
        assert served.is_healthy

    run(work)


@pytest.mark.by_default("0.2")
@pytest.mark.parametrize("seconds", [0.2, 60.0])
def test_streams_that_are_not_read_leave_their_places(
    models: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(engine_module, "ACTIVE_STREAMS", 2)
    monkeypatch.setattr(stream_turns, "ACTIVE_STREAMS", 2)
    monkeypatch.setattr(stream_turns, "PIECES_AHEAD", 4)
    monkeypatch.setattr(engine_module, "UNREAD_SECONDS", seconds)
    served = ServedModel("decoder", load(models / "decoder", backend="cpu"))
    record = TextExample("The cat", location="text 1")
    task = served.task("generate", max_new_tokens=40)
    assert isinstance(task, GenerationTask)
    expected = "".join(task.stream_text(record, 0))

    async def read(stream: AsyncIterator[Any]) -> str:
        text = ""
        async for piece in stream:
            if isinstance(piece, str):
                text += piece
        return text

    async def work(engine: Engine) -> None:
        slow = [engine.stream(served, task, record, 0, client="a") for _ in range(2)]
        first_pieces = [str(await anext(stream)) for stream in slow]
        reading = asyncio.ensure_future(read(engine.stream(served, task, record, 0, client="a")))
        if seconds == 60:
            await asyncio.sleep(0.5)  # until the streams have stopped
            begin = time.process_time()
            await asyncio.sleep(0.5)
            assert time.process_time() - begin < 0.25  # The engine sleeps.
            assert not reading.done()
            # A client that goes on gets everything, and then it is the turn of the third.
            for first_piece, stream in zip(first_pieces, slow, strict=True):
                assert first_piece + await read(stream) == expected
        assert await reading == expected
        if seconds < 60:
            # One place was needed.
            with pytest.raises(RequestTimeout):
                await read(slow[0])
            assert first_pieces[1] + await read(slow[1]) == expected

    run(work)


def test_streams_of_one_client_do_not_make_another_wait(models: Path) -> None:
    served = ServedModel("decoder", load(models / "decoder", backend="cpu"))
    record = TextExample("The cat", location="text 1")
    finished: list[str] = []

    async def work(engine: Engine) -> None:
        async def read(client: str, new_tokens: int) -> None:
            task = served.task("generate", max_new_tokens=new_tokens)
            assert isinstance(task, GenerationTask)
            async for piece in engine.stream(served, task, record, 0, client=client):
                if isinstance(piece, StreamEnd):
                    assert piece.new_tokens == new_tokens
            finished.append(client)

        greedy = [asyncio.ensure_future(read("greedy", 40)) for _ in range(3 * ACTIVE_STREAMS)]
        await asyncio.sleep(0)
        await asyncio.gather(read("second", 8), read("third", 8))
        assert [stream for stream in greedy if stream.done()] == []
        await asyncio.gather(*greedy)

    run(work)
    assert finished[:2] in (["second", "third"], ["third", "second"])
    assert finished.count("greedy") == 3 * ACTIVE_STREAMS


def test_a_failing_function_checks_the_model(served: ServedModel) -> None:
    session: Any = served.model.session
    weights = session.model.get_parameter("embeddings.tokens.weight")

    async def work(engine: Engine) -> None:
        task = served.task(Embed)
        records = list(as_records(["a"]))
        with pytest.raises(UsageError):  # The request is wrong, and the model works.
            await engine.call(served, task, refuse)
        assert served.is_healthy
        weights.data.fill_(torch.nan)
        with pytest.raises(NonFiniteError):
            await engine.call(served, task, lambda: list(task.run(records)))
        assert not served.is_healthy

    def refuse() -> None:
        raise UsageError("the request is wrong")

    run(work)


def test_clients_have_turns_however_many_wait(served: ServedModel) -> None:
    order: list[str] = []

    async def work(engine: Engine) -> None:
        async def request(texts: list[str], client: str) -> None:
            await vectors(engine, served, texts, client)
            order.append(client)

        greedy = [
            asyncio.ensure_future(request(["a b c"] * 60, f"greedy {number}"))
            for number in range(16)
        ]
        await asyncio.sleep(0)
        calls = count_calls(served.model)
        await request(["b"], "late")
        # A batch has the texts of about eight clients, so that two or three of them pass.
        assert len(calls) < 16
        await asyncio.gather(*greedy)

    run(work, max_batch_tokens=40)
    assert order[0] == "late"


def test_few_texts_are_tokenized_ahead(
    served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "TOKENIZED_AHEAD", engine_module._Amount(8, 1 << 16))
    task = served.task(Embed)
    jobs: list[Job] = []
    largest = 0

    async def work(engine: Engine) -> None:
        nonlocal largest
        for number in range(12):
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            texts = deque(as_records(["a b c"] * 10))
            jobs.append(Job(served, task, f"client {number % 3}", True, done, texts))
        for job in jobs:
            engine._arrivals.put(job)
        while not all(job.done.done() for job in jobs):
            largest = max(largest, sum(len(job.tokenized) for job in jobs))
            await asyncio.sleep(0)

    run(work, max_batch_tokens=10)
    assert 0 < largest <= 8 + 3
