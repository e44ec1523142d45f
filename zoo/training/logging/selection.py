"""Selection of a run's loggers by the setting ``report_to``."""

import importlib.util
import logging
from collections.abc import Sequence

from zoo.errors import UsageError
from zoo.plugins import get_logger
from zoo.plugins.logger import Logger

LOG = logging.getLogger("zoo")
ALWAYS = "jsonl"
DEFAULT = "tensorboard"


def select_loggers(report_to: Sequence[str] | None) -> list[type[Logger]]:
    """Return the classes of a run's loggers, ``JsonlLogger`` first."""
    # ``metrics.jsonl`` is always written: checkpoints record its position.
    names = (DEFAULT,) if report_to is None else report_to
    loggers = []
    for name in dict.fromkeys((ALWAYS, *names)):
        loggers.append(get_logger(name))
    available_loggers = [logger for logger in loggers if is_available(logger)]
    if report_to is not None:
        for logger in loggers:
            if logger not in available_loggers:
                raise UsageError(
                    f"the logger {logger.name} needs the package {logger.requires}",
                    logger.install,
                )
    return available_loggers


def note_missing_default() -> None:
    """Log how to install TensorBoard, if it is not installed."""
    logger = get_logger(DEFAULT)
    if not is_available(logger):
        LOG.info("no TensorBoard curves are written: %s", logger.install)


def is_available(logger: type[Logger]) -> bool:
    """Return ``True`` if the package that a logger needs is installed."""
    return not logger.requires or importlib.util.find_spec(logger.requires) is not None
