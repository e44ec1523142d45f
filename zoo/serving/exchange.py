"""A request while it is answered: what endpoints need of the server."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from zoo.inference.processing.records import TextExample, validate_text
from zoo.serving.errors import InvalidRequest, TooLarge

if TYPE_CHECKING:
    from zoo.inference.generation.task import GenerationTask
    from zoo.inference.task import Task
    from zoo.serving.admission import Admission, Reservation
    from zoo.serving.engine import Engine
    from zoo.serving.fair_queue import RowResult
    from zoo.serving.metrics import Metrics
    from zoo.serving.models import ModelTable, ServedModel
    from zoo.serving.stream_turns import StreamEnd

Value = TypeVar("Value")

RESULT_BYTES = 16  # Bytes that a number takes in an array and in JSON, together.


class Limits(msgspec.Struct, kw_only=True, frozen=True):
    """Limits on requests.

    Attributes:
        max_batch_tokens: tokens that are computed between two turns of a client.
        max_texts: texts of a request.
        max_body_bytes: size of a body.
        max_waiting_bytes: size of all requests that wait, with their results.
        truncate: whether texts that are too long are cut where a request does not say.
        body_seconds: time in which a body has to arrive.
        send_seconds: time in which a client has to read a part of an answer.
    """

    max_batch_tokens: int
    max_texts: int
    max_body_bytes: int
    max_waiting_bytes: int
    truncate: bool
    body_seconds: float = 30.0
    send_seconds: float = 60.0


@dataclass
class Service:
    """What all requests share."""

    models: "ModelTable"
    engine: "Engine"
    admission: "Admission"
    metrics: "Metrics"
    limits: Limits


@dataclass
class Exchange:
    """A request while it is answered.

    Attributes:
        service: what all requests share.
        client: who sent it.
        reservation: counts its bytes.
        path_parameters: parameters of the path, such as the name of a task.
        model_name: the model that answers, for logs.
        texts: number of texts that were computed.
        tokens: number of their tokens.
    """

    service: Service
    client: str
    reservation: "Reservation"
    path_parameters: "Mapping[str, str]"
    model_name: str | None = None
    texts: int = 0
    tokens: int = 0

    def model(self, name: str | None) -> "ServedModel":
        """Return the model of a request.

        Raises:
            NotFound: no model is called that.
        """
        model = self.service.models.get(name)
        self.model_name = model.name
        return model

    def truncates(self, truncate: bool | None) -> bool:
        """Return whether texts that are too long are cut."""
        return self.service.limits.truncate if truncate is None else truncate

    def records(self, texts: Sequence[str | tuple[str, str]]) -> list[TextExample]:
        """Return the records of texts or pairs of texts.

        Raises:
            TooLarge: there are too many.
            InvalidRequest: there are none.
        """
        self.require_count(len(texts))
        records = []
        for number, text in enumerate(texts):
            location = f"text {number + 1}"
            if isinstance(text, str):
                records.append(TextExample(validate_text(text, location), location=location))
            else:
                first, second = (validate_text(part, location) for part in text)
                records.append(TextExample(first, second, location=location))
        return records

    def require_count(self, count: int) -> None:
        """Check the number of texts of a request."""
        most = self.service.limits.max_texts
        if count == 0:
            raise InvalidRequest("there is no text", parameter="input")
        if count > most:
            raise TooLarge(f"the request has {count:,} texts, and at most {most:,} are computed")

    async def run(
        self,
        model: "ServedModel",
        task: "Task",
        records: Sequence[TextExample],
        *,
        truncate: bool | None = None,
        first_row: int = 0,
    ) -> "list[RowResult]":
        """Return the result of each record."""
        numbers = 0
        for record in records:
            task.validate(record)
            numbers += task.max_result_numbers(record)
        self.reservation.add(RESULT_BYTES * numbers)
        results = await self.service.engine.run(
            model,
            task,
            records,
            client=self.client,
            truncate=self.truncates(truncate),
            first_row=first_row,
        )
        self.texts += len(results)
        self.tokens += self.service.metrics.count_texts(model.name, results)
        return results

    async def call(
        self, model: "ServedModel", task: "Task", function: Callable[[], Value]
    ) -> Value:
        """Return what a function of a task returns that needs the model for itself."""
        return await self.service.engine.call(model, task, function)

    def stream(
        self, model: "ServedModel", task: "GenerationTask", record: TextExample, row: int
    ) -> "AsyncIterator[str | StreamEnd]":
        """Yield pieces of generated text, and the end."""
        return self.service.engine.stream(model, task, record, row, client=self.client)


def as_texts(value: Any, parameter: str) -> list[str]:
    """Return one text or a list of texts as a list.

    Raises:
        InvalidRequest: it holds token ids, which other interfaces accept.
    """
    texts = [value] if isinstance(value, str) else list(value)
    for text in texts:
        if not isinstance(text, str):
            raise InvalidRequest(
                "token ids are not accepted, since vocabularies differ; send texts",
                parameter=parameter,
            )
    return texts


def require_option(condition: bool, message: str, parameter: str) -> None:
    """Check a field of a request.

    Raises:
        InvalidRequest: the condition does not hold.
    """
    if not condition:
        raise InvalidRequest(message, parameter=parameter)
