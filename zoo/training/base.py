"""Interface between the trainer and a kind of run: model, objective and data."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import Tensor, nn

from zoo.checkpoint import TOKENIZER
from zoo.checkpoint.records import weights_digest
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.config import Config
from zoo.objectives.base import Batch, TrainingObjective
from zoo.plugins.logger import Logger
from zoo.training.config.run_config import RunConfig
from zoo.training.dataloader import BatchLoader, CollateWrapper
from zoo.training.distributed.context import DistContext
from zoo.training.state.pretrained import InitRecord, PretrainedInit
from zoo.training.state.run_manifest import RunManifest

if TYPE_CHECKING:
    from zoo.data.tokenizer import ExistingTokenizer
    from zoo.training.trainer import Callback


@dataclass(frozen=True, kw_only=True)
class RunSetup(ABC):
    """Model configuration, objective and data of a run, without devices; base of all kinds."""

    command: ClassVar[str]  # Command that starts and resumes such runs.
    config: RunConfig
    family: Family
    model_config: Config  # Configuration of the model, adapted to the data.
    objective: TrainingObjective  # What is learned.
    loggers: Sequence[type[Logger]]  # Classes of the run's loggers.
    # Pretrained weights that the run starts from; ``None`` for new weights.
    init: PretrainedInit | None = None
    # Settings that a command gave a new run; ``None`` for a run that has begun.
    requested: Mapping[str, Any] | None = None
    # Function that is called in place of the objective's ``collate``, with it and the examples;
    # ``None`` for none.
    collate_wrapper: CollateWrapper | None = None

    @property
    @abstractmethod
    def tokenizer(self) -> "ExistingTokenizer | None":
        """Tokenizer that the final models are saved with; ``None`` for none."""

    @property
    def generation(self) -> Mapping[str, Any]:
        """Settings of generation that final models are saved with: the pretrained model's.

        There are none if the tokenizer is another one, since they name tokens by their ids.
        """
        return {} if self.init is None else self.init.generation_with(self.tokenizer)

    @property
    def origin(self) -> str:
        """Where the initial weights come from, for the plan; empty for new weights."""
        init_from = self.config.init_from
        return "" if init_from is None else f"from {init_from.model}"

    @abstractmethod
    def train_dataloader(self, dist: DistContext, *, completed_steps: int = 0) -> BatchLoader:
        """Return the loader of the training data."""

    @abstractmethod
    def eval_batches(self, dist: DistContext) -> Sequence[Batch]:
        """Return this process's batches of an evaluation."""

    def with_workers(self, workers: int) -> Self:
        """Return the setup with a number of processes that tokenize; only a stream has some."""
        raise UsageError("--workers tokenize a stream, and this run has none", "leave it out")

    @abstractmethod
    def passes(self, steps: int) -> float | None:
        """Return the number of passes over the training data that a number of steps makes.

        ``None`` if the size of the data is not known.
        """

    def source_shares(self) -> dict[str, float]:
        """Return source -> its weight in the mean of an evaluation; empty to weight rows equally.

        It is the source's share of the rows at the end of the run.
        """
        return {}

    def warnings(self) -> list[str]:
        """Return what a person should be warned of before training; by default nothing."""
        return []

    def continued(self, record: RunManifest, step: int, rows: int) -> Self:
        """Return the setup of a run that continues another one; by default this one.

        Args:
            record: manifest of the other run.
            step: number of steps that it has done.
            rows: number of rows of the training data that it has read, of the length of that step.
        """
        return self

    @abstractmethod
    def plan(self) -> dict[str, str]:
        """Return name -> what a person should know of the data and the steps before training."""

    def data_log(self) -> dict[str, Any] | None:
        """Return what the first record of ``metrics.jsonl`` says of the data, if anything.

        The result only depends on the data and the settings.
        """
        return None

    @abstractmethod
    def manifest_fields(self) -> dict[str, Any]:
        """Return the fields of ``RunManifest`` that describe the data."""

    def input_digests(self) -> dict[str, str]:
        """Return name -> digest of the data and models that all processes must have alike.

        These are the pretrained models by default.
        """
        digests = {}
        if self.init is not None:
            for name, checkpoint in self.init.checkpoints.items():
                reference = str(getattr(self.init.init_config, name))
                digests[reference] = weights_digest(checkpoint.manifest.files)
        return digests

    @abstractmethod
    def require_same_data(self, run: Path, record: RunManifest) -> None:
        """Check that the data is that which a resumed run began with."""

    @abstractmethod
    def training_record(self, run: Path, best: tuple[float, int] | None) -> dict[str, Any]:
        """Return the record of the data, and of results, in the manifest of a final model."""

    def run_files(self) -> dict[str, bytes]:
        """Return name -> content of further files of the run's directory that never change.

        By default, this is the tokenizer of the pretrained model, if any, so that a resumed run
        does not need that model.
        """
        if self.init is None or self.init.tokenizer is None:
            return {}
        return {TOKENIZER: self.init.tokenizer.json}

    def replaced_parameters(self, model: nn.Module) -> Iterable[Tensor]:
        """Return the parameters that ``load_pretrained`` and ``prepare_model`` set as a whole."""
        if self.init is None:
            return []
        return self.init.loaded_parameters(self.objective, model)

    def load_pretrained(self, model: nn.Module) -> InitRecord:
        """Load the weights of ``init`` into the module to train; see ``PretrainedInit``."""
        assert self.init is not None, "called for runs that start from a checkpoint"
        return self.init.load_weights(self.objective, model)

    def prepare_model(self, model: nn.Module) -> None:  # noqa: B027 (optional)
        """Change the module to train before the optimizer is made, such as freeze parameters.

        Each process of a run calls it, after its initial weights were loaded.
        """

    def callbacks(self, run: Path) -> "list[Callback]":
        """Return callbacks of this kind of run, which precede the callbacks of all runs."""
        return []
