"""Interfaces of loggers of training runs, which plugins provide with the hook ``zoo_loggers``."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from zoo.io.page_text import curve_tag
from zoo.overrides import override


class Logger:
    """Base class of loggers of a training run; the main process instantiates each class once.

    Args:
        run: the run's directory.
        step: number of steps of the checkpoint that the run resumes from; 0 for a new run. Records
            of later steps by an earlier process are invalid, because these steps are repeated.

    Attributes:
        name: name in the setting ``report_to``.
        requires: package that the logger imports; empty if there is none.
        install: command that installs the package.
    """

    name: ClassVar[str] = ""
    requires: ClassVar[str] = ""
    install: ClassVar[str] = ""

    def __init__(self, run: Path, step: int) -> None:
        self.run = run
        self.step = step

    def log(self, record: Mapping[str, Any]) -> None:
        """Write a record of a logging step or an evaluation.

        Args:
            record: ``step``, the number of optimizer steps done; ``split``, ``train`` or
                ``validation``; ``loss``, the weighted sum of the terms; ``losses``, term -> mean;
                ``metrics``, name -> mean; and of the training split ``learning_rate``,
                ``gradient_norm`` and ``tokens`` (seen so far). With several sources, ``sources``
                has of each its ``share`` of the rows in training, ``loss`` and ``losses``.
        """

    def log_performance(self, record: Mapping[str, Any]) -> None:
        """Write a record of the run's speed.

        Args:
            record: ``step``; ``tokens_per_second``, ``seconds_per_step`` and, if known, ``mfu``
                over the last steps; ``memory_bytes``, the peak of this process; and ``seconds``
                since the last record.
        """

    def close(self) -> None:
        """Close the files and connections of the logger."""


class ScalarLogger(Logger, ABC):
    """Base class of loggers of curves: values by tag, such as ``train/loss`` and ``speed/mfu``."""

    @abstractmethod
    def log_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write values of one step.

        Args:
            scalars: tag -> value.
            step: number of optimizer steps done.
        """

    @override
    def log(self, record: Mapping[str, Any]) -> None:
        split = record["split"]
        names = ("loss", "learning_rate", "gradient_norm")
        scalars = {f"{split}/{name}": record[name] for name in names if name in record}
        for group, prefix in (("losses", "loss/"), ("metrics", "")):
            values = record.get(group, {}).items()
            scalars |= {curve_tag(f"{split}/{prefix}{name}"): value for name, value in values}
        for source, values in record.get("sources", {}).items():
            for name in ("share", "loss"):
                if name in values:
                    scalars[curve_tag(f"{split}/source/{source}/{name}")] = values[name]
        self.log_scalars(scalars, record["step"])

    @override
    def log_performance(self, record: Mapping[str, Any]) -> None:
        names = sorted(record.keys() - {"step", "seconds"})
        self.log_scalars({f"speed/{name}": record[name] for name in names}, record["step"])
