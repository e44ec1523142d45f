"""Tasks whose runs have several stages, each a run of a task of its own."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.training.config.overrides import ConfigDict


class TaskStages(ABC):
    """The stages of a task; the last one trains the task itself."""

    @abstractmethod
    def is_single(self, settings: Mapping[str, Any]) -> bool:
        """Return whether settings belong to one of the stages."""

    @abstractmethod
    def resolve(self, settings: Mapping[str, Any]) -> ConfigDict:
        """Return the settings that a run records: checked, with contents in place of files."""

    @abstractmethod
    def names(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the names of the stages in order; their directories have the same names."""

    @abstractmethod
    def settings(self, path: Path | None, settings: Mapping[str, Any], stage: str) -> ConfigDict:
        """Return the settings of a stage; ``path`` is the run's directory, once there is one."""

    @abstractmethod
    def files(self, path: Path, stage: str) -> ConfigDict:
        """Return the settings of a stage that name files in the run's directory."""

    @abstractmethod
    def prepare(self, path: Path, settings: Mapping[str, Any], stage: str, device: str) -> None:
        """Write what a stage reads into the run's directory, unless it is there."""
