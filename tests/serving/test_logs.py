"""Log records of the server and its libraries are JSON lines without texts."""

import json
import logging
from collections.abc import Iterator

import pytest

from zoo.serving.logs import LOGGERS, log_as_json


@pytest.fixture(autouse=True)
def restored_loggers() -> Iterator[None]:
    """The loggers are afterwards as they were."""
    loggers = [logging.getLogger(name) for name in (*LOGGERS, "uvicorn.access")]
    states = [(item.handlers, item.propagate, item.level, item.disabled) for item in loggers]
    yield
    for item, state in zip(loggers, states, strict=True):
        item.handlers, item.propagate, level, item.disabled = state
        item.setLevel(level)


@pytest.mark.parametrize("name", LOGGERS)
def test_records_of_libraries_are_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    log_as_json("info")
    logger = logging.getLogger(name)
    logger.warning("socket.send() raised exception.")
    logger.error("Task exception was never retrieved\nfuture: <Task result='a text'>")
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [record["message"] for record in records] == [
        "socket.send() raised exception.",
        "Task exception was never retrieved",
    ]
    assert [record["level"] for record in records] == ["warning", "error"]
