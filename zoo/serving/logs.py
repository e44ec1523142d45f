"""Log records as JSON lines; no text of a request is ever in one."""

import logging
import sys
import time

import msgspec

from zoo.overrides import override

LOGGERS = ("zoo.serving", "uvicorn", "asyncio")
# Attributes that every record has; the others come from ``extra``.
PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, logger, message and extra fields."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            # Further lines of asyncio have what a task computes, which may hold texts.
            "message": record.getMessage().partition("\n")[0],
        }
        for name, value in vars(record).items():
            if name not in PLAIN:
                fields[name] = value
        if record.exc_info and record.exc_info[0] is not None:
            # A message or a frame may hold texts of a request.
            fields["error"] = record.exc_info[0].__name__
        return msgspec.json.encode(fields, enc_hook=str).decode()


def log_as_json(level: str) -> None:
    """Write the records of the server and its libraries to standard error, as JSON lines."""
    # Records do not have these, and finding them out takes time.
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn.access").disabled = True
