"""A fine-tuning task: a declaration of five parts, each of which is tested without the others.

=========== ===================================================================================
``data``    reads a table, checks and reviews its samples, and fits the labels
``model``   the model to train, and the settings that follow from options and the checkpoint
``inputs``  tokenizes samples into rows, batches them, and runs the model
``loss``    a sum over a batch, and the count by which the trainer divides it
``results`` metrics of an evaluation, and its rows in reports
=========== ===================================================================================

Parts have no state. What a method needs to know of a run is in its first argument, a
``TaskContext``: a value, of which ``FineTuning`` makes another one when it learns more, such as
the training rows. A part may therefore be shared by tasks, and a task never subclasses another.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from zoo.data.readers.labelled import Sample
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.config import Config, Problem
from zoo.families.tasks import LabelType
from zoo.finetuning.order import EpochShuffle
from zoo.finetuning.rows import TokenizedRows, pad_and_stack
from zoo.inference.results import EvaluationResults, LocatedSample
from zoo.metrics import Metric
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import Batch, Example, LossOutput, Outputs, TrainedModel
from zoo.objectives.options import Options, parse_options
from zoo.plugins.metrics import select_metrics, selectable_metrics
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer import Text
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.checkpoint import Checkpoint
    from zoo.data.tokenizer import ExistingTokenizer
    from zoo.finetuning.stages import TaskStages
    from zoo.nn.heads import VocabularyProjection
    from zoo.training.state.pretrained import PretrainedInit

LABELS = "labels"  # The tensor of labels in a batch.


SampleT = TypeVar("SampleT", bound=LocatedSample)


@dataclass(frozen=True)
class TaskSplit(Generic[SampleT]):
    """The training or the evaluation data of a run.

    Attributes:
        samples: the samples.
        rows: their rows; a long text may have several.
    """

    samples: Sequence[SampleT]
    rows: TokenizedRows


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """What the parts of a task know of a run.

    Attributes:
        task: the task.
        head: head of the model that is trained.
        family: family of the model.
        config: configuration of the model, with the names of its outputs.
        input_names: names of the model's inputs, with the token ids first.
        tokenizer: tokenizer of the model.
        settings: configuration of the run.
        options: options of the task, of ``FineTuningTask.options_type``.
        labels: classes of the data, in order, as ``TaskData.fit_labels`` returned them.
        fitted: what the loss learned from the training rows, as ``TaskLoss.fit`` returned it.
        generation: settings of generation, of the pretrained model and of the options.
        train: the training data; ``None`` until it is tokenized.
        evaluation: the evaluation data; ``None`` until it is tokenized.
        checkpoint: the teacher's checkpoint; ``None`` for the model that is trained.
        teacher_modules: a teacher's modules, as ``TaskModel.teacher_modules`` returned them.
        compute_dtype: dtype of the last forward pass, such as ``bfloat16``.
        step: number of steps done.
        max_steps: number of steps of the run; 0 before it begins.
    """

    task: "FineTuningTask[Any]"
    head: str
    family: Family
    config: Config
    input_names: tuple[str, ...]
    tokenizer: TextTokenizer
    settings: FineTuneConfig
    options: Any
    labels: tuple[str, ...] = ()
    fitted: Any = None
    generation: Mapping[str, Any] = field(default_factory=dict)
    train: TaskSplit[Any] | None = None
    evaluation: TaskSplit[Any] | None = None
    checkpoint: "Checkpoint | None" = None
    teacher_modules: Any = None
    compute_dtype: str = "float32"
    step: int = 0
    max_steps: int = 0

    @property
    def name(self) -> str:
        """Name of the task, and of its main loss term."""
        return self.task.name

    @property
    def pad_id(self) -> int:
        """The padding token."""
        return self.tokenizer.pad_id

    @cached_property
    def label_indices(self) -> Mapping[str, int]:
        """Label -> index of the model's output."""
        return {name: number for number, name in enumerate(self.labels)}

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        """Metrics that the settings select in addition to those of the task, by name."""
        results = self.task.results
        requests = list(self.settings.metrics)
        best = self.settings.metric_for_best_model
        if best is not None and best not in ("loss", *results.metric_names(self)):
            names = {request.partition(":")[0] for request in requests}
            if best not in names and best in selectable_metrics(results.metric_input):
                requests.append(best)
        return select_metrics(requests, results.metric_input, self.name)

    @property
    def max_tokens(self) -> int:
        """Number of tokens that texts are truncated to."""
        return self.settings.max_seq_len

    def target(self, sample: Any) -> Any:
        """Return the value of a sample in the tensor of labels; see ``TaskData.target``."""
        return self.task.data.target(self, sample)


class TaskData(ABC, Generic[SampleT]):
    """Reads the samples of a task, checks them and fits the labels.

    Attributes:
        split_hint: what to do, apart from giving ``--eval``, if the data cannot be split.
        reads_names: whether ``read`` takes ``NAME=FILE``, and reads the name.
    """

    split_hint: ClassVar[str] = ""
    reads_names: ClassVar[bool] = False

    def find_dataset_files(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace directories of known data sets by their files.

        Args:
            data: settings as in ``TableConfig``.

        Returns:
            the settings; by default unchanged.

        Raises:
            SourceError: a directory lacks a file.
        """
        return data

    def data_paths(self, paths: Sequence[str]) -> list[str]:
        """Return the files, directories and patterns that paths in the settings name."""
        return list(paths)

    @abstractmethod
    def read(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[SampleT]:
        """Return the samples of files.

        Args:
            paths: files, directories or patterns.
            table: settings of the data, such as names of columns.
            problems: collects rows that cannot be used.

        Raises:
            UsageError: the settings do not suit the task, or a file does not suit the settings.
            SourceError, VerificationError: a file cannot be read, or is damaged.
        """

    def read_evaluation(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[SampleT]:
        """Return the samples of evaluation files; by default with ``read``."""
        return self.read(paths, table, problems)

    def check(self, sample: SampleT, table: TableConfig) -> SampleT:
        """Return a sample after the checks of its label that need no model.

        Raises:
            RowError: the label is wrong.
        """
        return sample

    @abstractmethod
    def texts(self, sample: SampleT) -> list[str]:
        """Return the texts of a sample, to train a tokenizer and to find duplicates."""

    def review(self, sample: SampleT, table: TableConfig) -> Reviewed:
        """Return the parts of a sample to review; see ``zoo.data.readers.review``."""
        return Reviewed(self.texts(sample), None)

    def label_names(self, sample: SampleT, table: TableConfig) -> tuple[str, ...]:
        """Return a sample's classes, by default none.

        Raises:
            RowError: the label has the wrong type.
        """
        return ()

    def fit_labels(
        self, settings: FineTuneConfig, samples: Sequence[SampleT], pretrained: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the classes of the training data, in the order of the model's outputs.

        Args:
            settings: configuration of the run.
            samples: the training data.
            pretrained: labels of a pretrained head that is kept; they decide the order.

        Returns:
            the labels; by default none.

        Raises:
            UsageError: a label in the settings has no sample, or there are too few labels.
        """
        return ()

    def output_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the model's outputs; by default the labels."""
        return labels

    @abstractmethod
    def target(self, context: TaskContext, sample: SampleT) -> Any:
        """Return the value of a sample in the tensor of labels.

        Raises:
            RowError: the model lacks the label.
        """

    def usable(
        self, context: TaskContext, samples: Sequence[SampleT], problems: RowProblems
    ) -> list[SampleT]:
        """Return the samples that have a ``target``; ``problems`` collects the others."""
        return list(problems.valid(samples, lambda sample: self.target(context, sample)))

    def warnings(
        self, context: TaskContext, train: TaskSplit[SampleT], evaluation: TaskSplit[SampleT]
    ) -> list[str]:
        """Return what users should know about the data; by default nothing."""
        return []


class TaskModel:
    """The model of a task, and the settings that follow from options and a checkpoint."""

    def parse_options(self, task: "FineTuningTask[Any]", settings: FineTuneConfig) -> Any:
        """Return the options of a run, by default ``task_args`` as ``task.options_type``.

        Raises:
            UsageError: an option is unknown, or its value is wrong.
        """
        return parse_options(task.options_type, settings.task_args, task.name, "task")

    def trains_all_parameters(self, context: TaskContext) -> bool:
        """Return whether each trained parameter has a gradient in every step."""
        return True

    def resolve_head(self, task: "FineTuningTask[Any]", family: Family) -> str:
        """Return the head to train, by default ``task.head``.

        Raises:
            UsageError: the family lacks the head.
        """
        if task.head not in family.heads():
            raise UsageError(
                f"{family.name} has no head {task.head}, which {task.name} needs",
                "see `zoo families`",
            )
        return task.head

    def resolve_settings(
        self, task: "FineTuningTask[Any]", settings: FineTuneConfig, init: "PretrainedInit | None"
    ) -> FineTuneConfig:
        """Return the configuration with the options that follow from the pretrained model.

        Args:
            task: the task.
            settings: configuration of the run.
            init: the pretrained model, if there is one. In a resumed run it has no checkpoint, and
                the configuration is already resolved.

        Raises:
            UsageError: the pretrained model does not suit the task.
        """
        return settings

    def teacher_settings(
        self, settings: FineTuneConfig, checkpoint: "Checkpoint"
    ) -> FineTuneConfig:
        """Return the configuration with which a teacher runs; by default the student's."""
        return settings

    def teacher_modules(self, context: TaskContext, checkpoint: "Checkpoint") -> Any:
        """Return modules of a teacher in addition to its backbone; by default none."""
        return None

    def output_width(self, context: TaskContext) -> int | None:
        """Return the width of the output that distillation losses compare.

        By default ``None``: they compare hidden states of the model.
        """
        return None

    def config_changes(self, settings: FineTuneConfig) -> dict[str, Any]:
        """Return fields of the model's configuration that the task's options set."""
        return {}

    def adapt_tokenizer(
        self, settings: FineTuneConfig, tokenizer: "ExistingTokenizer | None"
    ) -> "ExistingTokenizer | None":
        """Return the tokenizer of the model to train; by default unchanged.

        Args:
            settings: configuration of the run.
            tokenizer: the pretrained model's, or the one of the settings; ``None`` if the family
                needs no file.

        Raises:
            UsageError: the tokenizer does not suit an option.
        """
        return tokenizer

    def generation_changes(self, options: Any, tokenizer: TextTokenizer) -> dict[str, Any]:
        """Return settings of generation that the task's options set; by default none."""
        return {}

    def require_valid(self, context: TaskContext) -> None:
        """Check options against the model and the data; raises ``UsageError``."""

    def build(self, context: TaskContext, family: Family, config: Config) -> "nn.Module":
        """Return the module to train, with new weights; by default the model with its head."""
        return family.model(config, context.head)

    def prepare(self, context: TaskContext, model: "nn.Module") -> None:
        """Change the model before the optimizer is created; by default, do nothing.

        Args:
            context: the run.
            model: what ``build`` returned, with its initial weights.

        Raises:
            UsageError: an option does not suit the model.
        """

    def load_checkpoint(
        self, context: TaskContext, model: "nn.Module", checkpoint: "Checkpoint"
    ) -> list[str]:
        """Load what a checkpoint has in addition to the model's weights; by default nothing.

        Returns:
            names of parameters outside of the saved model that keep new weights.
        """
        return []

    def finish_evaluation(
        self,
        context: TaskContext,
        model: "nn.Module",
        predictions: "Mapping[str, NDArray[Any]]",
    ) -> None:
        """Update weights that follow from the outputs of a whole evaluation.

        By default, do nothing. ``predictions`` are those of ``EvaluationResults.metrics``.
        """

    def trained_models(self, context: TaskContext, model: "nn.Module") -> dict[str, TrainedModel]:
        """Return the models that a run saves, by name; the main one is called ``model``."""
        return {"model": TrainedModel(model, context.config, context.head)}


class TaskInputs(ABC, Generic[SampleT]):
    """Turns samples into rows and batches, and runs the model on them.

    Attributes:
        varying_outputs: why a cache cannot keep a teacher's outputs as one vector per row; empty
            if it can.
    """

    varying_outputs: ClassVar[str] = "whose outputs have other shapes"

    def averages_windows(self, context: TaskContext) -> bool:
        """Return whether a long text is split into windows, whose outputs are averaged."""
        return False

    def reads_unattended(self, context: TaskContext) -> bool:
        """Return whether outputs at tokens outside of the attention mask are read."""
        return False

    def has_same_rows(self, context: TaskContext, student: TaskContext) -> bool:
        """Return whether samples are the rows of a student's task with the same tokenizer."""
        return True

    def auxiliary_weights(self, context: TaskContext) -> Mapping[str, float]:
        """Return the weight of each loss term that ``forward`` computes; by default none."""
        return {}

    def training_rows(self, context: TaskContext, samples: Sequence[SampleT]) -> TokenizedRows:
        """Tokenize the training data; by default with ``rows``."""
        return self.rows(context, samples)

    @abstractmethod
    def rows(self, context: TaskContext, samples: Sequence[SampleT]) -> TokenizedRows:
        """Tokenize samples.

        Args:
            context: the run. For evaluation data, it has the training data.
            samples: the samples; ``context.target`` returns the target of one.

        Returns:
            the rows, with the counts of auxiliary terms; ``TaskLoss`` counts its own.

        Raises:
            UsageError: the model lacks a label, or there is no room for tokens.
            InvalidRows: texts have no tokens.
        """

    def train_order(self, context: TaskContext, rows: TokenizedRows) -> EpochShuffle:
        """Return the order of the training rows."""
        return EpochShuffle(len(rows), context.settings.seed)

    def masks(self, context: TaskContext) -> dict[str, str | None]:
        """Return name of each sequence of tokens -> name of its attention mask, if any."""
        mask = "attention_mask" if "attention_mask" in context.input_names else None
        return {context.input_names[0]: mask}

    def padding(self, context: TaskContext) -> dict[str, int]:
        """Return name of an array -> value of its padding, if that is not 0."""
        return {context.input_names[0]: context.pad_id}

    def collate(
        self, context: TaskContext, examples: Sequence[Example], terms: Sequence[str]
    ) -> Batch:
        """Return a batch of rows, padded on the right.

        Args:
            context: the run.
            examples: the rows.
            terms: loss terms, whose counts the batch has.
        """
        return pad_and_stack(examples, self.padding(context), terms, masks=self.masks(context))

    def forward(
        self, context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Run the model; by default, return the logits of the head, float32."""
        inputs = model_inputs(context, batch)
        return Outputs({context.name: at_least_float32(model(**inputs)["logits"])})


class TaskLoss(ABC):
    """The loss of a task: a sum over a batch, and the count that it is divided by."""

    # Number of rows of ``scored_logits`` for each of the count; below 1 where the loss counts the
    # classes of a row.
    logits_per_count: ClassVar[float] = 1.0
    # Tensor of the batch with the labels of ``scored_logits``, in one of the shapes of
    # ``TrainingObjective.label_tensors``; ``None`` if there is none.
    label_tensor: ClassVar[str | None] = None

    def label_type(self, context: TaskContext) -> LabelType:
        """Return what the values of ``label_tensor`` are, by default classes."""
        return "classes"

    def weights(self, context: TaskContext) -> Mapping[str, float]:
        """Return loss term -> weight in the total loss; by default one term, named as the task."""
        return {context.name: 1.0}

    def compares_samples(self, context: TaskContext) -> bool:
        """Return whether the loss of a sample depends on others of its micro-batch."""
        return False

    def fit(self, context: TaskContext, rows: TokenizedRows) -> Any:
        """Return what the loss learns from the training rows, such as class weights.

        The value is ``context.fitted`` from then on; by default ``None``.
        """
        return None

    def counts(self, context: TaskContext, rows: TokenizedRows) -> "Mapping[str, NDArray[Any]]":
        """Return the number of values, or sum of weights, that each row adds to a term, (rows,).

        Args:
            context: the run, with ``fitted``.
            rows: the rows to count.
        """
        return {context.name: np.ones(len(rows), np.int64)}

    @abstractmethod
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        """Return the sum of each term, and in evaluations what ``EvaluationResults`` reads.

        Args:
            context: the run.
            outputs: what ``TaskInputs.forward`` returned.
            batch: the tensors of the batch.
        """

    def scored_logits(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "Mapping[str, Tensor | VocabularyProjection]":
        """Return the logits that a term's count is over, (n, classes), by term."""
        return outputs.logits

    def count_logits(self, context: TaskContext, batch: Batch, term: str) -> int:
        """Return the number of rows of ``scored_logits`` of a term in a batch."""
        return round(batch.counts[term] * self.logits_per_count)


@dataclass(frozen=True, kw_only=True)
class FineTuningTask(Generic[SampleT]):
    """A task of fine-tuning.

    Attributes:
        name: name of the task; its ``TaskSpec`` has the same.
        head: head of the model that is trained, or whose place ``model`` fills.
        data: reads samples.
        inputs: makes rows and runs the model.
        loss: the loss; ``None`` for a task that can only be learned from a teacher.
        results: metrics and rows of reports.
        model: the model and its settings.
        options_type: type of ``task_args``.
        defaults: settings of the run that take precedence over a preset.
        problem: problem type in the model's configuration, ``None`` for models without one.
        stages: the runs that the task consists of, if there are several.
    """

    name: str
    head: str
    data: TaskData[SampleT]
    inputs: TaskInputs[SampleT]
    loss: TaskLoss | None
    results: EvaluationResults[SampleT]
    model: TaskModel = field(default_factory=TaskModel)
    options_type: type[Options] = Options
    defaults: Mapping[str, Any] = field(default_factory=dict)
    problem: Problem | None = None
    stages: "TaskStages | None" = None

    @property
    def needs_teacher(self) -> bool:
        """Whether the task has no loss of its own."""
        return self.loss is None


def model_inputs(context: TaskContext, batch: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return the tensors of a batch that the model reads."""
    return {name: batch[name] for name in context.input_names if name in batch}


def texts_or_pairs(samples: Sequence[Sample]) -> list[Text]:
    """Return the text of each sample, or both texts of a pair."""
    texts: list[Text] = []
    for sample in samples:
        if sample.pair is None:
            texts.append(sample.text)
        else:
            texts.append((sample.text, sample.pair))
    return texts
