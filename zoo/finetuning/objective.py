"""The objective of a fine-tuning run: a task, and what is known of the run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from zoo.checkpoint import load_text_tokenizer
from zoo.data.readers.problems import RowProblems
from zoo.errors import UsageError, did_you_mean
from zoo.families.base import Family
from zoo.families.config import Config, Problem
from zoo.families.tasks import LabelType
from zoo.finetuning.order import EpochShuffle
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.task import FineTuningTask, TaskContext, TaskSplit
from zoo.objectives.base import (
    Batch,
    Example,
    LossOutput,
    Outputs,
    TrainedModel,
    TrainingObjective,
)
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.overrides import override
from zoo.plugins.metrics import greater_is_better
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.checkpoint import Checkpoint
    from zoo.evaluation.base import Prediction
    from zoo.nn.heads import VocabularyProjection

FLOAT32 = "float32"


class FineTuning(TrainingObjective):
    """A task as the trainer sees it; it is never subclassed.

    Args:
        task: the task.
        family: family of the model.
        config: configuration of the model, with the names of its outputs.
        input_names: names of the model's inputs, with the token ids first.
        tokenizer: tokenizer of the model.
        settings: configuration of the run.
        labels: classes of the data, in order.
        generation: settings of generation of the pretrained model.

    Attributes:
        context: what the parts of the task know of the run.

    Raises:
        UsageError: the task has no metric or option of a name in the settings, or an option does
            not suit the model.
    """

    def __init__(
        self,
        task: FineTuningTask[Any],
        *,
        family: Family,
        config: Config,
        input_names: Sequence[str],
        tokenizer: TextTokenizer,
        settings: FineTuneConfig,
        labels: tuple[str, ...] = (),
        generation: Mapping[str, Any] | None = None,
    ) -> None:
        options = task.model.parse_options(task, settings)
        self.task = task
        self.name: str = task.name  # type: ignore[misc]
        self.head: str = task.model.resolve_head(task, family)  # type: ignore[misc]
        self.config = config
        self.context = TaskContext(
            task=task,
            head=self.head,
            family=family,
            config=config,
            input_names=tuple(input_names),
            tokenizer=tokenizer,
            settings=settings,
            options=options,
            labels=labels,
            generation={
                **(generation or {}),
                **task.model.generation_changes(options, tokenizer),
            },
        )
        self.uses_all_parameters = task.model.trains_all_parameters(self.context)
        self.metric_for_best_model = self._selecting_metric()
        self.greater_is_better = self._greater_is_better()
        task.model.require_valid(self.context)

    def _selecting_metric(self) -> str:
        """Return the metric that selects the best checkpoint."""
        name = self.context.settings.metric_for_best_model
        if name is None:
            return self.task.results.default_metric(self.context)
        metrics = self.metric_names
        if name not in ("loss", *metrics):
            raise UsageError(
                f"{self.name} has no metric {name!r}",
                did_you_mean(name, ("loss", *metrics)) or f"it has loss, {', '.join(metrics)}",
            )
        return name

    def _greater_is_better(self) -> bool:
        setting = self.context.settings.greater_is_better
        if setting is not None:
            return setting
        return greater_is_better(self.metric_for_best_model)

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes of the data, in order."""
        return self.context.labels

    @property
    def options(self) -> Any:
        """Options of the task."""
        return self.context.options

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the model's inputs, with the token ids first."""
        return self.context.input_names

    @property
    def problem(self) -> Problem | None:
        """Problem type in the model's configuration."""
        return self.task.problem

    @property
    def output_width(self) -> int | None:
        """Width of the output that distillation losses compare; ``None`` for hidden states."""
        return self.task.model.output_width(self.context)

    @property
    def averages_windows(self) -> bool:
        """Whether a long text is split into windows, whose outputs are averaged."""
        return self.task.inputs.averages_windows(self.context)

    def has_same_rows(self, student: "FineTuning") -> bool:
        """Return whether the student's rows suit this teacher if their tokenizers are the same."""
        return self.task.inputs.has_same_rows(self.context, student.context)

    def for_teacher(self, checkpoint: "Checkpoint") -> "FineTuning":
        """Return the task as a teacher of this student runs it.

        The teacher reads the student's samples with its own inputs, tokenizer and settings.
        """
        config = msgspec.structs.replace(checkpoint.config, labels=self.config.labels)
        family = checkpoint.family
        teacher = FineTuning(
            self.task,
            family=family,
            config=config,
            input_names=tuple(family.onnx(checkpoint.config, checkpoint.head_name).inputs),
            tokenizer=load_text_tokenizer(checkpoint),
            settings=self.task.model.teacher_settings(self.context.settings, checkpoint),
            labels=self.labels,
            generation=checkpoint.model.generation,
        )
        teacher.context = replace(
            teacher.context,
            checkpoint=checkpoint,
            teacher_modules=self.task.model.teacher_modules(teacher.context, checkpoint),
            fitted=self.context.fitted,
            train=self.context.train,
            evaluation=self.context.evaluation,
        )
        return teacher

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of the metrics of an evaluation."""
        return (*self.task.results.metric_names(self.context), *self.context.metrics)

    def require_metric(self, samples: Sequence[Any]) -> None:
        """Check that samples count for the metric that selects; raises ``UsageError``."""
        task_metrics = self.task.results.available_metrics(self.context, samples)
        available = ("loss", *task_metrics, *self.context.metrics)
        if self.metric_for_best_model not in available:
            raise UsageError(
                "no sample of the evaluation data counts for the metric "
                f"{self.metric_for_best_model}",
                "give other data with --eval, or set metric_for_best_model to "
                f"{', '.join(available)}",
            )

    @property
    def compares_samples(self) -> bool:
        """Whether the loss of a sample depends on the other samples of its micro-batch."""
        loss = self.task.loss
        return loss is not None and loss.compares_samples(self.context)

    @property
    def micro_batch_size(self) -> int:
        """Number of samples per forward pass, which a loss may compare."""
        settings = self.context.settings
        return settings.micro_batch_size or settings.batch_size

    def splits_micro_batches(self, world_size: int) -> bool:
        """Return whether a loss compares samples across ``world_size`` processes.

        It does not if each process gets whole micro-batches.
        """
        share = self.context.settings.batch_size // world_size
        return self.compares_samples and world_size > 1 and share % self.micro_batch_size != 0

    def train_order(self, rows: TokenizedRows) -> EpochShuffle:
        """Return the order of the training rows."""
        return self.task.inputs.train_order(self.context, rows)

    def usable(self, samples: Sequence[Any], problems: RowProblems) -> list[Any]:
        """Return the samples that have a target; ``problems`` collects the others."""
        return self.task.data.usable(self.context, samples, problems)

    def set_train(self, samples: Sequence[Any]) -> TaskSplit[Any]:
        """Tokenize the training data, which class weights and evaluations may depend on."""
        rows = self.task.inputs.training_rows(self.context, samples)
        if self.task.loss is not None:
            self.context = replace(self.context, fitted=self.task.loss.fit(self.context, rows))
        split = TaskSplit(samples, self._counted(rows))
        self.context = replace(self.context, train=split)
        return split

    def set_evaluation(self, samples: Sequence[Any]) -> TaskSplit[Any]:
        """Tokenize the evaluation data; the training data has to be set."""
        rows = self._counted(self.task.inputs.rows(self.context, samples))
        split = TaskSplit(samples, rows)
        self.context = replace(self.context, evaluation=split)
        return split

    def _counted(self, rows: TokenizedRows) -> TokenizedRows:
        """Return rows with the counts of all loss terms."""
        if self.task.loss is None:
            return rows
        return replace(rows, counts={**rows.counts, **self.task.loss.counts(self.context, rows)})

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        auxiliary = self.task.inputs.auxiliary_weights(self.context)
        if self.task.loss is None:
            return auxiliary
        return {**self.task.loss.weights(self.context), **auxiliary}

    @property
    @override
    def scored_terms(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    @override
    def label_tensors(self) -> Mapping[str, str]:
        if self.task.loss is None or self.task.loss.label_tensor is None:
            return {}
        return {self.name: self.task.loss.label_tensor}

    @override
    def label_type(self, term: str) -> LabelType:
        assert self.task.loss is not None, "it has label_tensors"
        return self.task.loss.label_type(self.context)

    @override
    def model(self, family: Family, config: Config) -> "nn.Module":
        return self.task.model.build(self.context, family, config)

    def prepare_model(self, model: "nn.Module") -> None:
        """Change the model before the optimizer is created."""
        self.task.model.prepare(self.context, model)

    def load_checkpoint(self, model: "nn.Module", checkpoint: "Checkpoint") -> list[str]:
        """Load what a checkpoint has in addition to the model's weights."""
        return self.task.model.load_checkpoint(self.context, model, checkpoint)

    @override
    def models_to_save(self, model: "nn.Module") -> dict[str, TrainedModel]:
        return self.task.model.trained_models(self.context, model)

    @override
    def begin_step(self, model: "nn.Module", step: int, max_steps: int) -> None:
        self.context = replace(self.context, step=step, max_steps=max_steps)

    @override
    def collate(self, examples: Sequence[Example]) -> Batch:
        return self.task.inputs.collate(self.context, examples, list(self.loss_weights))

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        self._note_dtype(batch)
        return self.task.inputs.forward(self.context, model, batch)

    def _note_dtype(self, batch: "Mapping[str, Tensor]") -> None:
        """Keep the dtype of the computation, by which metrics judge ties of scores."""
        device = next(iter(batch.values())).device.type
        dtype = FLOAT32
        if torch.is_autocast_enabled(device):
            dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        if dtype != self.context.compute_dtype:
            self.context = replace(self.context, compute_dtype=dtype)

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        if self.task.loss is None:
            return LossOutput({})
        return self.task.loss.loss(self.context, outputs, batch)

    @override
    def loss_with_auxiliary(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        output = self.loss(outputs, batch)
        sums = dict(output.sums)
        for name in self.task.inputs.auxiliary_weights(self.context):
            if name in outputs.logits:
                sums[name] = outputs.logits[name]
        return replace(output, sums=sums)

    @override
    def scored_logits(
        self, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "Mapping[str, Tensor | VocabularyProjection]":
        if self.task.loss is None:
            return outputs.logits
        return self.task.loss.scored_logits(self.context, outputs, batch)

    @override
    def scored_rows(self, batch: "Mapping[str, Tensor]", term: str) -> "Tensor | None":
        labels = batch.get(self.label_tensors.get(term, ""))
        if labels is None:
            return None
        if labels.dim() == 2 and not labels.is_floating_point():  # Of tokens.
            rows: Tensor = (labels != IGNORED).nonzero()[:, 0]
            return rows
        return torch.arange(len(labels), device=labels.device)

    @override
    def count_logits(self, batch: Batch, term: str) -> int:
        if self.task.loss is None:
            return super().count_logits(batch, term)
        return self.task.loss.count_logits(self.context, batch, term)

    @override
    def generated_predictions(
        self, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        return self.task.results.generate(self.context, model, batch)

    @override
    def finish_evaluation(self, model: "nn.Module", predictions: "Mapping[str, Tensor]") -> None:
        arrays = {name: values.numpy() for name, values in predictions.items()}
        self.task.model.finish_evaluation(self.context, model, arrays)

    @override
    def compute_metrics(self, predictions: "Mapping[str, Tensor]") -> dict[str, float]:
        arrays = {name: values.numpy() for name, values in predictions.items()}
        metrics = self.task.results.metrics(self.context, arrays)
        if not arrays:
            return metrics
        return {**metrics, **self.task.results.selected_metrics(self.context, arrays)}

    def report_rows(
        self,
        predictions: "Mapping[str, NDArray[Any]]",
        samples: Sequence[Any],
        numbers: Sequence[int],
    ) -> "Iterator[Prediction]":
        """Yield the rows of an evaluation's samples in reports; see ``TaskResults.rows``."""
        return self.task.results.rows(self.context, predictions, samples, numbers)
