"""Base class of fine-tuning tasks: from samples to rows, outputs and metrics."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from zoo.data.packing import EpochShuffle
from zoo.data.readers.labelled import Columns, read_samples
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError, did_you_mean
from zoo.evaluation.base import Evaluation
from zoo.families.base import Family
from zoo.families.config import Config, Problem
from zoo.finetuning.heads import HEAD, serves_other_task
from zoo.finetuning.rows import TokenizedRows, TokenizedTexts, pad_and_stack, tokenize
from zoo.metrics import LOWER_IS_BETTER
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import Batch, Example, LossOutput, Outputs, TrainingObjective
from zoo.objectives.options import Options, parse_options
from zoo.overrides import override
from zoo.plugins.tasks import evaluation_task, find_task
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer import Text
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.checkpoint import Checkpoint
    from zoo.data.tokenizer import ExistingTokenizer
    from zoo.evaluation.base import Prediction
    from zoo.finetuning.stages import TaskStages
    from zoo.training.state.pretrained import PretrainedInit

LABELS = "labels"  # the tensor of a batch


class FineTuning(TrainingObjective):
    """Base class of tasks.

    Args:
        config: configuration of the model, with the labels of the data.
        inputs: names of the model's inputs, with the token ids first.
        pad_id: the padding token.
        run: configuration of the run.

    Raises:
        UsageError: the task has no metric or option of a name in ``run``.
    """

    needs_teacher: ClassVar[bool] = False  # it has no loss and can only be learned from a teacher
    # why a cache cannot keep a teacher's outputs as one vector per row; empty if it can
    varying_outputs: ClassVar[str] = "whose outputs have other shapes"
    problem: ClassVar[Problem | None] = None  # problem type in the model's configuration
    default_metric: ClassVar[str] = "loss"  # selects the best checkpoint
    lower_is_better: ClassVar[tuple[str, ...]] = LOWER_IS_BETTER  # metrics
    defaults: ClassVar[Mapping[str, Any]] = {}  # settings that take precedence over a preset
    # what to do, apart from giving ``--eval``, if the data cannot be split
    split_hint: ClassVar[str] = ""
    stages: "ClassVar[TaskStages | None]" = None  # of a run of several
    options_type: ClassVar[type[Options]] = Options  # of ``task_args``

    def __init__(
        self, config: Config, inputs: Sequence[str], pad_id: int, run: FineTuneConfig
    ) -> None:
        self.config, self.inputs, self.pad_id, self.run = config, tuple(inputs), pad_id, run
        # for tasks that generate: settings of the pretrained model, and of the task's options
        self.generation_defaults: Mapping[str, Any] = {}
        self.options: Any = parse_options(self.options_type, run.task_args, self.name, "task")
        self.metric_for_best_model: str = run.metric_for_best_model or self.default_metric
        if self.metric_for_best_model not in ("loss", *self.metric_names):
            raise UsageError(
                f"{self.name} has no metric {self.metric_for_best_model!r}",
                did_you_mean(self.metric_for_best_model, ("loss", *self.metric_names))
                or f"it has loss, {', '.join(self.metric_names)}",
            )
        lower = self.metric_for_best_model in self.lower_is_better
        self.greater_is_better = (
            not lower if run.greater_is_better is None else run.greater_is_better
        )

    @property
    @abstractmethod
    def metric_names(self) -> tuple[str, ...]:
        """Names of the metrics of an evaluation."""

    def metrics_of(self, samples: Sequence[Any]) -> Sequence[str]:
        """Return the names of the metrics that can be computed on samples; by default all."""
        return self.metric_names

    def require_metric(self, samples: Sequence[Any]) -> None:
        """Check that samples count for the metric that selects; raises ``UsageError``."""
        available, name = ("loss", *self.metrics_of(samples)), self.metric_for_best_model
        if name not in available:
            raise UsageError(
                f"no sample of the evaluation data counts for the metric {name}",
                "give other data with --eval, or set metric_for_best_model to "
                f"{', '.join(available)}",
            )

    @property
    def loss_in_batch(self) -> bool:
        """Whether the loss of a sample depends on the other samples of its micro-batch."""
        return False

    @property
    def reads_unattended(self) -> bool:
        """Whether it reads outputs at tokens outside of the attention mask, as packed rows lack."""
        return False

    @property
    def averages_windows(self) -> bool:
        """Whether a long text is split into windows, whose outputs are averaged."""
        return False

    @property
    def micro_batch_size(self) -> int:
        """Number of samples per forward pass; also the number that a loss in a batch compares."""
        return self.run.micro_batch_size or self.run.batch_size

    def splits_micro_batches(self, world_size: int) -> bool:
        """Return whether a loss compares samples across ``world_size`` processes.

        It does not if each process gets whole micro-batches.
        """
        share = self.run.batch_size // world_size
        return self.loss_in_batch and world_size > 1 and share % self.micro_batch_size != 0

    @classmethod
    def head_in(cls, family: Family) -> str:
        """Return the head to train in a family, by default ``head``; raises ``UsageError``."""
        if cls.head not in family.heads():
            raise UsageError(
                f"{family.name} has no head {cls.head}, which {cls.name} needs",
                "see `zoo families`",
            )
        return cls.head

    @classmethod
    def resolve(cls, run: FineTuneConfig, init: "PretrainedInit | None") -> FineTuneConfig:
        """Return the configuration with the settings that follow from the pretrained model.

        ``init`` is the pretrained model, if there is one. In a resumed run it has no checkpoint,
        and the configuration is already resolved.
        """
        return run

    @classmethod
    def with_option_of_head(
        cls,
        run: FineTuneConfig,
        init: "PretrainedInit | None",
        option: str,
        value: "Callable[[Checkpoint], bool]",
    ) -> FineTuneConfig:
        """Return the configuration with an option taken from the pretrained head by ``value``.

        Explicit options win; a new head uses ``False``. For ``init`` see ``resolve``.
        """
        before = None if init is None else init.checkpoints.get("model")
        if run.task_args.get(option) is not None or init is None or before is None:
            return run
        same_head = before.head_name == cls.head and HEAD not in init.init_config.new_modules
        same_head = same_head and not serves_other_task(before, cls.head, cls.problem)
        options = {**run.task_args, option: same_head and value(before)}
        return msgspec.structs.replace(run, task_args=options)

    @classmethod
    def config_changes(cls, run: FineTuneConfig) -> dict[str, Any]:
        """Return fields of the model's configuration that the task's options set."""
        return {}

    @classmethod
    def adapt_tokenizer(
        cls, run: FineTuneConfig, tokenizer: "ExistingTokenizer | None"
    ) -> "ExistingTokenizer | None":
        """Return the tokenizer of the model to train; by default ``tokenizer``.

        That is the pretrained model's, or of the settings; ``None`` if the family needs no file.
        One that does not suit an option is a ``UsageError``.
        """
        return tokenizer

    def reads_as(self, other: "FineTuning") -> bool:
        """Return whether samples are the rows of another task that has the same tokenizer."""
        return True

    def generation_changes(self, tokenizer: TextTokenizer) -> dict[str, Any]:
        """Return settings of generation that the task's options set; by default none."""
        return {}

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes of the data, in order; by default none."""
        return ()

    @classmethod
    def locate(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace directories of known data sets by their files; raises ``SourceError``.

        ``data`` has settings as in ``TableConfig``. By default nothing is changed.
        """
        return data

    @classmethod
    def files(cls, paths: Sequence[str]) -> list[str]:
        """Return the files, directories and patterns that paths in the settings name."""
        return list(paths)

    @classmethod
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        """Return the samples of files, directories or patterns; ``problems`` collects bad rows.

        Raises what ``zoo.data.readers.labelled.read_samples`` raises.
        """
        return read_samples(paths, Columns(data.text, data.label_column, data.pair), problems)

    @classmethod
    def read_eval(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        """Return the samples of evaluation files; by default with ``read``."""
        return cls.read(paths, data, problems)

    @classmethod
    def check(cls, sample: Any, data: TableConfig) -> Any:
        """Return a sample after the checks of its label that need no model; raises ``RowError``."""
        return sample

    @classmethod
    def review(cls, sample: Any, data: TableConfig) -> Reviewed:
        """Return the parts of a sample to review; see ``zoo.data.readers.review``."""
        return Reviewed(cls.texts(sample), None)

    @classmethod
    def texts(cls, sample: Any) -> list[str]:
        """Return the texts of a sample, to train a tokenizer."""
        return [sample.text, *([] if sample.pair is None else [sample.pair])]

    @classmethod
    def label_names(cls, sample: Any, data: TableConfig) -> tuple[str, ...]:
        """Return a sample's classes, by default none; ``RowError`` if the type is wrong."""
        return ()

    @classmethod
    def fix_labels(
        cls, run: FineTuneConfig, samples: Sequence[Any], known: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the classes of the model's outputs, in order; by default none.

        ``known`` are the labels of a pretrained head that is kept; they decide the order. A label
        in the settings without samples, or too few labels, is a ``UsageError``.
        """
        return ()

    @classmethod
    def output_names(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the model's outputs; by default the classes."""
        return labels

    @abstractmethod
    def target(self, sample: Any) -> Any:
        """Return the value in the tensor of labels; ``RowError`` if the model lacks it."""

    def usable(self, samples: Sequence[Any], problems: RowProblems) -> list[Any]:
        """Return the samples that have a ``target``; ``problems`` collects the others."""
        return list(problems.valid(samples, self.target))

    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        """Tokenize samples.

        A label that the model lacks and texts without room for tokens are ``UsageError``; texts
        without tokens are ``InvalidRows``.
        """
        targets = np.array([self.target(sample) for sample in samples])
        tokens, values = self.tokenize(samples, tokenizer)
        size = targets[0].size if self.problem == "multi_label_classification" else 1
        counts = {self.name: np.full(len(samples), size, np.int64)}
        return TokenizedRows(
            tokens.starts, tokens.arrays, {LABELS: targets, **values}, counts, tokens.truncated
        )

    def tokenize(
        self, samples: Sequence[Any], tokenizer: TextTokenizer
    ) -> "tuple[TokenizedTexts, Mapping[str, NDArray[Any]]]":
        """Return the tokens of samples, and name -> further values of each row."""
        texts, limit = texts_or_pairs(samples), self.run.max_seq_len
        locations = [sample.location for sample in samples]
        return tokenize(texts, tokenizer, self.inputs, limit, locations=locations), {}

    @override
    def collate(self, examples: Sequence[Example]) -> Batch:
        return pad_and_stack(
            examples,
            self.padding(),
            list(self.loss_weights),
            masks=self.masks(),
        )

    def masks(self) -> dict[str, str | None]:
        """Return name of each sequence of tokens in a row -> name of its attention mask, if any."""
        return {self.inputs[0]: "attention_mask" if "attention_mask" in self.inputs else None}

    def train_order(self, rows: TokenizedRows) -> EpochShuffle:
        """Return the order of the training rows."""
        return EpochShuffle(len(rows), self.run.seed)

    def data_warnings(
        self, train: Sequence[Any], evaluation: Sequence[Any], rows: TokenizedRows
    ) -> list[str]:
        """Return what users should know about samples and tokenized rows; by default nothing."""
        return []

    def load_checkpoint(self, model: "nn.Module", checkpoint: "Checkpoint") -> list[str]:
        """Load what a checkpoint has in addition to the model's weights; by default nothing.

        ``model`` is what ``self.model`` returned, with the weights of the checkpoint. Returns names
        of its parameters outside of the saved model that keep new weights.
        """
        return []

    def prepare_model(self, model: "nn.Module") -> None:
        """Change the model before the optimizer is created; by default, do nothing.

        ``model`` is what ``self.model`` returned, with its initial weights. An option that does not
        suit it is a ``UsageError``.
        """

    def padding(self) -> dict[str, int]:
        """Return name of an array -> value of its padding, if that is not 0."""
        return {self.inputs[0]: self.pad_id}

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of the head, float32."""
        inputs = {name: batch[name] for name in self.inputs if name in batch}
        return Outputs({self.name: at_least_float32(model(**inputs)["logits"])})

    @property
    def class_labels(self) -> Sequence[str]:
        """Names of the classes that reports count samples of; by default the data's."""
        return self.labels

    def mistake(self, row: "Prediction") -> float | None:
        """Return how bad a prediction is; by default as the evaluation of the task does."""
        evaluated = find_task(self.run.task, "train").has("evaluate")
        return (evaluation_task(self.run.task) if evaluated else Evaluation).mistake(row)

    def reported(
        self,
        predictions: "Mapping[str, NDArray[Any]]",
        samples: "Sequence[Any]",
        numbers: "Sequence[int]",
    ) -> "Iterator[Prediction]":
        """Yield the rows of an evaluation's samples in reports; none if the task has no rows.

        ``predictions`` has name -> values of all rows, and ``numbers`` is the number of each row;
        several processes may share rows.
        """
        of_samples = self.of_samples(predictions, len(numbers))
        order = dict(zip(numbers, range(len(numbers)), strict=True))
        for number in sorted(order) if of_samples else ():
            values = {name: array[order[number]] for name, array in of_samples.items()}
            row = self.prediction(samples[number], values)
            if row is None:
                return
            yield row

    def of_samples(
        self, predictions: "Mapping[str, NDArray[Any]]", count: int
    ) -> "Mapping[str, Sequence[Any]]":
        """Return the predictions by sample, (samples,) each; none if they are of other units."""
        fit = all(len(array) == count for array in predictions.values())
        return predictions if fit else {}  # type: ignore[return-value]

    def prediction(self, sample: Any, values: "Mapping[str, Any]") -> "Prediction | None":
        """Return a sample's row in reports, as ``zoo eval --predictions`` has it, or ``None``.

        ``values`` has name -> value of ``LossOutput.predictions`` for the sample.
        """
        return None

    @override
    def compute_metrics(self, predictions: "Mapping[str, Tensor]") -> dict[str, float]:
        return self.metrics({name: values.numpy() for name, values in predictions.items()})

    @abstractmethod
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        """Return the metrics of an evaluation, finite numbers; see ``compute_metrics``."""

    @abstractmethod
    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the loss; see ``TrainingObjective``."""


def texts_or_pairs(samples: Sequence[Any]) -> list[Text]:
    """Return the text of each sample, or both texts of a pair."""
    return [s.text if s.pair is None else (s.text, s.pair) for s in samples]


def report_texts(sample: Any) -> "Prediction":
    """Return where a sample is, and its texts, which begin its row in reports."""
    pair = {} if sample.pair is None else {"pair": sample.pair}
    return {"location": sample.location, "text": sample.text, **pair}
