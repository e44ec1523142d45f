"""Sentences without labels, whose embeddings are learned from a teacher."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from zoo.data.readers.documents import ReaderConfig, iter_files
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.finetuning.embeddings.data import TextGroup, review_group
from zoo.finetuning.embeddings.options import EmbeddingOptions, stored_options
from zoo.finetuning.embeddings.representation import Representation
from zoo.finetuning.embeddings.task import EmbeddingInputs, EmbeddingModel, SentenceEncoder
from zoo.finetuning.order import EpochShuffle
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.task import FineTuningTask, TaskContext, TaskData, TaskInputs
from zoo.inference.results import EvaluationResults, ResultContext
from zoo.objectives.base import Outputs
from zoo.overrides import override
from zoo.sentence_models.torch_modules import SentenceModules, load_modules
from zoo.tasks.causal_lm.data import texts_of
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.checkpoint import Checkpoint


def read_sentences(
    paths: Iterable[str | Path], column: str, problems: RowProblems | None = None
) -> list[TextGroup]:
    """Return the sentences of files: lines of text, or a column of tables."""
    reading = ReaderConfig(document_separator="line", text_field=column)

    def sentences(file: Path, file_problems: RowProblems) -> Iterator[TextGroup]:
        for text, location in texts_of(file, reading, "text", file_problems):
            yield TextGroup((text,), None, location)

    return list(iter_files(paths, sentences, problems, "text", "give a file with text"))


NAME = "sentences"
DENSE = Representation()


class SentenceData(TaskData[TextGroup]):
    """Single sentences."""

    @override
    def read(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[TextGroup]:
        if table.pair is not None or table.label is not None:
            raise UsageError(f"{NAME} are single texts", "leave out --pair and --label")
        return list(read_sentences(paths, table.text, problems))

    @override
    def texts(self, sample: TextGroup) -> list[str]:
        return list(sample.texts)

    @override
    def review(self, sample: TextGroup, table: TableConfig) -> Reviewed:
        return review_group(sample)

    @override
    def target(self, context: TaskContext, sample: TextGroup) -> Any:
        return None

    @override
    def usable(
        self, context: TaskContext, samples: Sequence[TextGroup], problems: RowProblems
    ) -> list[TextGroup]:
        return list(samples)


class SentenceModel(EmbeddingModel):
    """A sentence encoder; a teacher has modules and prompts of its own."""

    @override
    def require_valid(self, context: TaskContext) -> None:
        super().require_valid(context)
        if context.options.matryoshka is not None:
            raise UsageError(
                f"{NAME} have no loss of their own, which matryoshka would change",
                "leave it out",
            )

    @override
    def output_width(self, context: TaskContext) -> int | None:
        return self.representation.width(context)

    @override
    def teacher_settings(
        self, settings: FineTuneConfig, checkpoint: "Checkpoint"
    ) -> FineTuneConfig:
        options = stored_options(checkpoint.model.pooling)
        return msgspec.structs.replace(settings, task_args=options)

    @override
    def teacher_modules(self, context: TaskContext, checkpoint: "Checkpoint") -> SentenceModules:
        modules = SentenceModules(self.representation.pooling(context))
        modules = modules.eval().requires_grad_(False)
        weights = checkpoint.module_weights() if checkpoint.model.pooling else {}
        missing_weights = load_modules(modules, weights)
        if missing_weights:
            raise UsageError(
                f"{checkpoint.name} has no {', '.join(missing_weights)}", "convert it again"
            )
        return modules


@dataclass(frozen=True)
class SentenceInputs(EmbeddingInputs):
    """One column of sentences, each after the default prompt."""

    varying_outputs: ClassVar[str] = ""

    @override
    def columns(self, context: TaskContext) -> int:
        return 1

    @override
    def prompt(self, context: TaskContext, column: int, *, is_pair: bool) -> str:
        return self.representation.pooling(context).prompt()

    @override
    def train_order(self, context: TaskContext, rows: TokenizedRows) -> EpochShuffle:
        return TaskInputs.train_order(self, context, rows)

    @override
    def has_same_rows(self, context: TaskContext, student: TaskContext) -> bool:
        own = self.representation.pooling(context)
        other = self.representation.pooling(student)
        return (own.prompt(), own.lowercase, own.pools_prompt) == (
            other.prompt(),
            other.lowercase,
            other.pools_prompt,
        )

    @override
    def forward(
        self, context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Return the embeddings, (rows, hidden).

        ``model`` is a ``SentenceEncoder``, or the backbone of a teacher.
        """
        if not isinstance(model, SentenceEncoder):
            context.teacher_modules.to(next(model.parameters()).device)
            model = SentenceEncoder(model, "", context.teacher_modules, None)
        prompt_tokens = self.prompt_tokens(context, 0, is_pair=False)
        vectors = self.representation.embed(context, model, batch, 0, prompt_tokens)
        return Outputs({context.name: vectors})


class SentenceResults(EvaluationResults[TextGroup]):
    """No metrics: a distillation compares embeddings with the teacher's."""

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        return ()

    @override
    def default_metric(self, context: ResultContext) -> str:
        return "loss"

    @override
    def metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        return {}


SENTENCES = FineTuningTask(
    name=NAME,
    head="none",
    data=SentenceData(),
    inputs=SentenceInputs(DENSE),
    loss=None,
    results=SentenceResults(),
    model=SentenceModel(DENSE),
    options_type=EmbeddingOptions,
)
