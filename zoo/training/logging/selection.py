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
    loggers = [get_logger(name) for name in dict.fromkeys((ALWAYS, *names))]
    missing = [logger for logger in loggers if not is_available(logger)]
    if missing and report_to is not None:
        name = missing[0].name
        package = missing[0].requires
        raise UsageError(f"the logger {name} needs the package {package}", missing[0].install)
    return [logger for logger in loggers if logger not in missing]


def note_missing_default() -> None:
    """Log how to install TensorBoard, if it is not installed."""
    logger = get_logger(DEFAULT)
    if not is_available(logger):
        LOG.info("no TensorBoard curves are written: %s", logger.install)


def is_available(logger: type[Logger]) -> bool:
    """Return ``True`` if the package that a logger needs is installed."""
    return not logger.requires or importlib.util.find_spec(logger.requires) is not None
