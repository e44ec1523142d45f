"""Sentences without labels, whose embeddings are learned from a teacher."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.packing import EpochShuffle
from zoo.data.readers.problems import RowProblems
from zoo.errors import UsageError
from zoo.finetuning.base import FineTuning
from zoo.finetuning.pooling import SentenceModules, load_modules
from zoo.finetuning.rows import TokenizedRows
from zoo.objectives.base import LossOutput, Outputs
from zoo.overrides import override
from zoo.tasks.sentence_embedding.train import SentenceEmbedding, SentenceEncoder
from zoo.tasks.sentences.data import read_sentences
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.checkpoint import Checkpoint


class Sentences(SentenceEmbedding):
    """Embeddings of single sentences, without a loss of their own; see ``zoo.distillation``."""

    name: ClassVar[str] = "sentences"
    varying_outputs: ClassVar[str] = ""
    needs_teacher: ClassVar[bool] = True

    def __init__(self, *args: Any) -> None:
        self.taught: SentenceModules | None = None  # of a teacher
        super().__init__(*args)
        if self.options.matryoshka is not None:
            raise UsageError(
                f"{self.name} have no loss of their own, which matryoshka would change",
                "leave it out",
            )

    @property
    @override
    def loss_in_batch(self) -> bool:
        return False

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        return {}

    @property
    @override
    def columns(self) -> int:
        return 1

    @property
    @override
    def default_metric(self) -> str:  # type: ignore[override]
        return "loss"

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        return ()

    @classmethod
    @override
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        if data.pair is not None or data.label is not None:
            raise UsageError(f"{cls.name} are single texts", "leave out --pair and --label")
        return list(read_sentences(paths, data.text, problems))

    @override
    def prompt(self, number: int, *, scored: bool) -> str:
        return self.pooling.prompt()

    @override
    def train_order(self, rows: TokenizedRows) -> EpochShuffle:
        return FineTuning.train_order(self, rows)

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the embeddings, (rows, hidden), of the module of ``self.model`` or a backbone."""
        encoder = model if isinstance(model, SentenceEncoder) else self.encoder(model)
        return Outputs({self.name: self._embed(encoder, batch, 0)})

    def load_modules_of(self, checkpoint: "Checkpoint") -> None:
        """Load the modules of a teacher."""
        self.taught = SentenceModules(self.pooling).eval().requires_grad_(False)
        stored = checkpoint.module_weights() if checkpoint.model.pooling else {}
        if new := load_modules(self.taught, stored):
            raise UsageError(f"{checkpoint.name} has no {', '.join(new)}", "convert it again")

    def encoder(self, backbone: "nn.Module") -> SentenceEncoder:
        """Return the model of a teacher with its modules."""
        assert self.taught is not None, "it is a teacher's task"
        self.taught.to(next(backbone.parameters()).device)
        return SentenceEncoder(backbone, "", self.taught, None)

    @override
    def reads_as(self, other: FineTuning) -> bool:
        if not isinstance(other, Sentences):
            return False
        mine, theirs = (
            (pooling.prompt(), pooling.lowercase, pooling.pools_prompt)
            for pooling in (self.pooling, other.pooling)
        )
        return mine == theirs

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        return LossOutput({})

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        return {}
