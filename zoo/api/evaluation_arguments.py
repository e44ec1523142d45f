"""What ``zoo.evaluate`` and ``zoo eval`` pass to an evaluation of files, of a suite, or of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from zoo.api import Model
from zoo.api.arguments import AnyPath, AnyPaths, as_reference


@dataclass(frozen=True, kw_only=True)
class EvaluationArguments:
    """Arguments of ``zoo.evaluate``, which describes them.

    Attributes:
        compute: backend, device, dtype and threads.
        source: values of ``SOURCE_OPTIONS`` of ``zoo.api.task_models``.
        options: options of the task.
    """

    model: str | PathLike[str] | Model
    eval: AnyPaths
    task: str | None
    suite: str | None
    tasks: str | Sequence[str]
    predictions: AnyPath | None
    report: AnyPath | None
    force: bool
    excel_safe: bool
    record: bool
    compute: Mapping[str, Any]
    source: Mapping[str, Any]
    options: Mapping[str, Any]

    @property
    def reference(self) -> str:
        """The model's reference; of a loaded one, the path of its checkpoint."""
        if isinstance(self.model, Model):
            return str(self.model.checkpoint.path)
        return as_reference(self.model)
