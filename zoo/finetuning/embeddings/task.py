"""Tasks that train embeddings on pairs, triplets or scored pairs of texts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from zoo.data.readers.labelled import label_name, label_number, warn_of_equal_numbers
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError, did_you_mean
from zoo.finetuning.embeddings.data import TextGroup, read_text_groups, review_group
from zoo.finetuning.embeddings.losses import EMBEDDING_LOSSES
from zoo.finetuning.embeddings.losses.base import EmbeddingLoss
from zoo.finetuning.embeddings.losses.cosent import CoSENT
from zoo.finetuning.embeddings.losses.functions import cut, pair_features
from zoo.finetuning.embeddings.measures import SCORES, TEXT_NUMBERS, Measure, embedding_mistake
from zoo.finetuning.embeddings.options import EmbeddingOptions
from zoo.finetuning.embeddings.order import NoDuplicatesOrder, text_numbers
from zoo.finetuning.embeddings.representation import (
    IDS,
    MASK,
    EmbeddedBatch,
    Representation,
    class_logits,
    column_name,
    splits_micro_batches,
)
from zoo.finetuning.labels import label_index, order_labels
from zoo.finetuning.order import EpochShuffle
from zoo.finetuning.rows import TokenizedRows, TokenizedTexts, tokenize
from zoo.finetuning.task import (
    LABELS,
    FineTuningTask,
    TaskContext,
    TaskData,
    TaskInputs,
    TaskLoss,
    TaskModel,
    TaskSplit,
)
from zoo.inference.results import EvaluationResults, Prediction, ResultContext
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import LossOutput, Outputs, TrainedModel
from zoo.objectives.options import option_error, parse_options
from zoo.overrides import override
from zoo.sentence_models.numpy_modules import count_prompt_tokens
from zoo.sentence_models.torch_modules import SentenceModules, load_modules
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.checkpoint import Checkpoint
    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.training.state.pretrained import PretrainedInit

CLASSES = "classes"  # Logits of the classes of pairs, in the outputs.


class SentenceEncoder(nn.Module):
    """A backbone, its modules, and the classifier of pairs, which the final model lacks."""

    def __init__(
        self,
        backbone: nn.Module,
        head: str,
        modules: SentenceModules,
        classifier: nn.Linear | None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.classifier = classifier
        self.sentence_modules = modules


def run_loss(context: TaskContext) -> EmbeddingLoss:
    """Return the loss of a run."""
    loss: EmbeddingLoss = context.options.loss
    return loss


def batch_loss(context: TaskContext, batch: "Mapping[str, Tensor]") -> EmbeddingLoss:
    """Return the loss of a batch: an evaluation on scores has ``cosent``."""
    loss = run_loss(context)
    if loss.label == "none" and LABELS in batch:
        return CoSENT(scale=getattr(loss, "scale", CoSENT.scale))
    return loss


def run_measure(context: TaskContext) -> Measure:
    """Return the measure of the evaluations of a run."""
    if context.settings.data.eval_score is not None:
        return SCORES
    return run_loss(context).measure


def compares_pairs(context: TaskContext, *, is_labelled: bool) -> bool:
    """Return whether rows are pairs with scores or classes, or anchors and their texts."""
    return is_labelled and run_loss(context).label != "teacher"


def run_context(context: ResultContext) -> TaskContext:
    """Return the context of a run."""
    assert isinstance(context, TaskContext), "embeddings are compared with the options of a run"
    return context


@dataclass(frozen=True)
class EmbeddingData(TaskData[TextGroup]):
    """Groups of texts that are compared.

    Attributes:
        name: name of the task, for messages.
    """

    name: str

    @override
    def read(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[TextGroup]:
        if table.pair is None:
            raise UsageError(
                f"{self.name} compares two texts", "name the column of the second with --pair"
            )
        columns = [table.text, table.pair, *table.negatives]
        return list(read_text_groups(paths, columns, table.label, problems))

    @override
    def read_evaluation(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[TextGroup]:
        if table.eval_score is None or table.pair is None:
            return self.read(paths, table, problems)
        columns = [table.text, table.pair]
        return list(read_text_groups(paths, columns, table.eval_score, problems))

    @override
    def texts(self, sample: TextGroup) -> list[str]:
        return list(sample.texts)

    @override
    def review(self, sample: TextGroup, table: TableConfig) -> Reviewed:
        return review_group(sample)

    @override
    def fit_labels(
        self, settings: FineTuneConfig, samples: Sequence[TextGroup], pretrained: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the classes of pairs, if the loss has classes."""
        if settings.data.label is None:
            return ()
        name = settings.task_args.get("loss") or default_loss(settings)
        if not isinstance(name, str) or name not in EMBEDDING_LOSSES.names():
            return ()  # The options are refused later.
        if EMBEDDING_LOSSES.find(name).label != "classes":
            return ()
        class_names = {label_name(sample.label, sample.location) for sample in samples}
        return order_labels(class_names, settings.data.labels, 2)

    @override
    def output_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        return ()  # The final model does not have the classifier of pairs.

    @override
    def target(self, context: TaskContext, sample: TextGroup) -> Any:
        """Return the score, the index of the class, or margins, (negatives,)."""
        if context.labels:
            name = label_name(sample.label, sample.location)
            return label_index(name, context.label_indices, sample.location)
        loss = run_loss(context)
        if loss.label == "none":
            return np.float32(label_number(sample.label, sample.location))
        return loss.target(sample)

    @override
    def usable(
        self, context: TaskContext, samples: Sequence[TextGroup], problems: RowProblems
    ) -> list[TextGroup]:
        if samples[0].label is None:
            return list(samples)
        return super().usable(context, samples, problems)

    @override
    def warnings(
        self, context: TaskContext, train: TaskSplit[TextGroup], evaluation: TaskSplit[TextGroup]
    ) -> list[str]:
        """Warn of prompts in the data, equal scores and texts, and dimensions without a loss."""
        inputs = context.task.inputs
        assert isinstance(inputs, EmbeddingInputs), "the task has rows of embeddings"
        warnings = list[str]()
        dims = context.options.matryoshka
        width = inputs.representation.width(context)
        if dims is not None and width not in dims:
            warnings.append(f"matryoshka lacks {width}, all dimensions of embeddings")
        warnings += repeated_prompts(context, inputs, train.samples)
        warnings += equal_scores(context, train.samples, training=True)
        warnings += equal_scores(context, evaluation.samples, training=False)
        warnings += shared_texts(inputs.train_order(context, train.rows))
        return warnings


def shared_texts(order: EpochShuffle) -> list[str]:
    """Return a warning for samples that share a text with another one of their batch."""
    if not isinstance(order, NoDuplicatesOrder):
        return []
    count = order.duplicates(0)
    if not count:
        return []
    return [
        f"{count:,} of {order.num_rows:,} samples share a text with another one of their batch, "
        "which then counts as a negative; a lower batch_size, or fewer such samples, avoids that"
    ]


def repeated_prompts(
    context: TaskContext, inputs: "EmbeddingInputs", samples: Sequence[TextGroup]
) -> list[str]:
    """Return a warning for texts that already begin with the prompt that precedes them."""
    is_pair = compares_pairs(context, is_labelled=samples[0].label is not None)
    prompts = list[str]()
    for column in range(len(samples[0].texts)):
        prompts.append(inputs.prompt(context, column, is_pair=is_pair))
    count = 0
    for sample in samples:
        for prompt, text in zip(prompts, sample.texts, strict=True):
            if prompt and text.startswith(prompt):
                count += 1
    if not count:
        return []
    return [
        f"{count:,} texts begin with the model's prompt, which precedes every text anyway; "
        "remove it from the data"
    ]


def equal_scores(
    context: TaskContext, samples: Sequence[TextGroup], *, training: bool
) -> list[str]:
    """Return a warning for scores that are all equal."""
    if run_loss(context).label in ("classes", "teacher") or samples[0].label is None:
        return []
    scores = (label_number(sample.label, sample.location) for sample in samples)
    return warn_of_equal_numbers(scores, training=training)


def default_loss(settings: FineTuneConfig) -> str:
    """Return the name of the loss for the columns of the data."""
    return "multiple-negatives" if settings.data.label is None else "cosent"


@dataclass(frozen=True)
class EmbeddingModel(TaskModel):
    """A sentence encoder.

    Attributes:
        representation: what its embeddings are.
    """

    representation: Representation

    @override
    def resolve_head(self, task: FineTuningTask[Any], family: "Family") -> str:
        return self.representation.resolve_head(task, family)

    @override
    def resolve_settings(
        self,
        task: FineTuningTask[Any],
        settings: FineTuneConfig,
        init: "PretrainedInit | None",
    ) -> FineTuneConfig:
        pooling = None
        if init is not None and "model" in init.checkpoints:
            pooling = init.checkpoints["model"].model.pooling
        return self.representation.resolve_settings(settings, pooling)

    @override
    def parse_options(self, task: FineTuningTask[Any], settings: FineTuneConfig) -> Any:
        """Return the options, with the loss and its settings in place of its name."""
        arguments = dict(settings.task_args)
        name = arguments.pop("loss", None) or default_loss(settings)
        loss_class = self._loss_class(task, name)
        loss_settings: dict[str, Any] = {}
        for key, value in self.representation.loss_defaults.items():
            if key in loss_class.setting_names():
                loss_settings[key] = value
        for key in loss_class.setting_names():
            if key in arguments:
                loss_settings[key] = arguments.pop(key)
        self._refuse_settings_of_other_losses(task, name, arguments)
        options: Any = parse_options(
            task.options_type,
            arguments,
            task.name,
            "task",
            other_names=loss_class.setting_names(),
        )
        try:
            loss = loss_class.from_settings(loss_settings)
        except (msgspec.ValidationError, ValueError) as error:
            raise option_error(error, task.name, "task") from error
        return msgspec.structs.replace(options, loss=loss)

    def _loss_class(self, task: FineTuningTask[Any], name: Any) -> type[EmbeddingLoss]:
        names = EMBEDDING_LOSSES.names()
        if not isinstance(name, str) or name not in names:
            raise UsageError(
                f"the task {task.name}: loss is {name!r}",
                did_you_mean(str(name), names) or f"it is one of {', '.join(names)}",
            )
        loss_class = EMBEDDING_LOSSES.find(name)
        if self.representation.is_dense or loss_class.compares_any:
            return loss_class
        suitable_names = list[str]()
        for other_name in names:
            if EMBEDDING_LOSSES.find(other_name).compares_any:
                suitable_names.append(other_name)
        raise UsageError(f"{task.name} has no loss {name}", f"it has {', '.join(suitable_names)}")

    def _refuse_settings_of_other_losses(
        self, task: FineTuningTask[Any], name: str, arguments: Mapping[str, Any]
    ) -> None:
        option_names = {field.encode_name for field in msgspec.structs.fields(task.options_type)}
        for key in arguments:
            if key in option_names:
                continue
            readers = list[str]()
            for loss_name in EMBEDDING_LOSSES.names():
                if key in EMBEDDING_LOSSES.find(loss_name).setting_names():
                    readers.append(loss_name)
            if readers:
                raise UsageError(
                    f"the loss {name} does not read {key}",
                    f"leave it out; it is a setting of {', '.join(readers)}",
                )

    @override
    def require_valid(self, context: TaskContext) -> None:
        run_loss(context).check_columns(context.settings.data)
        self.representation.require_valid(context)
        largest = max(context.options.matryoshka or (0,))
        width = self.representation.width(context)
        if largest > width:
            raise UsageError(
                f"matryoshka is {largest}, and embeddings have {width} dimensions",
                f"give numbers up to {width}",
            )

    @override
    def trains_all_parameters(self, context: TaskContext) -> bool:
        # Next to an adapter, a pooler that the base lacks is new, and no loss reads it.
        return context.settings.adapter is None

    @override
    def build(self, context: TaskContext, family: "Family", config: "Config") -> nn.Module:
        backbone = family.model(config, context.head)
        # No token vector depends on a pooler, which is frozen.
        for name, parameter in backbone.named_parameters():
            if name.startswith("pooler."):
                parameter.requires_grad_(False)
        classifier = None
        if context.labels:
            width = self.representation.width(context)
            classifier = nn.Linear(3 * width, len(context.labels))
        modules = SentenceModules(self.representation.pooling(context))
        return SentenceEncoder(backbone, context.head, modules, classifier)

    @override
    def load_checkpoint(
        self, context: TaskContext, model: nn.Module, checkpoint: "Checkpoint"
    ) -> list[str]:
        """Load the weights of the checkpoint's modules; those that it lacks are new."""
        module: Any = model
        if not checkpoint.model.pooling:
            return load_modules(module.sentence_modules, {})
        return load_modules(module.sentence_modules, checkpoint.module_weights())

    @override
    def trained_models(self, context: TaskContext, model: nn.Module) -> dict[str, TrainedModel]:
        module: Any = model
        trained = TrainedModel(
            module.backbone,
            context.config,
            module.head,
            self.representation.pooling(context),
            modules=module.sentence_modules,
        )
        return {"model": trained}


@lru_cache(maxsize=64)
def unpooled_tokens(tokenizer: TextTokenizer, prompt: str, max_tokens: int) -> int:
    """Return the number of tokens of a prompt."""
    return count_prompt_tokens(tokenizer, prompt, max_tokens)


@dataclass(frozen=True)
class EmbeddingInputs(TaskInputs[TextGroup]):
    """Columns of texts, each after its prompt.

    The model's prompts precede the texts, as in ``zoo eval``: in losses on anchors and their texts,
    the query prompt the anchors and the document prompt the other texts; in pairs with scores or
    classes, the default prompt both.

    Attributes:
        representation: what the embeddings are.
    """

    representation: Representation

    def columns(self, context: TaskContext) -> int:
        """Return the number of texts in a row."""
        return 2 + len(context.settings.data.negatives)

    def prompt(self, context: TaskContext, column: int, *, is_pair: bool) -> str:
        """Return the prompt of a column of texts; column 0 has the anchors."""
        pooling = self.representation.pooling(context)
        if is_pair:
            return pooling.prompt()
        if column == 0:
            return pooling.query_prompt()
        return pooling.document_prompt()

    def tokenizer(self, context: TaskContext) -> TextTokenizer:
        """Return the tokenizer, which lower-cases texts if the model does."""
        if context.options.lowercase:
            return context.tokenizer.lowercased
        return context.tokenizer

    def prompt_tokens(self, context: TaskContext, column: int, *, is_pair: bool) -> int:
        """Return the number of tokens of a column's prompt that are not pooled."""
        prompt = self.prompt(context, column, is_pair=is_pair)
        if not prompt or self.representation.pooling(context).pools_prompt:
            return 0
        max_tokens = self.representation.max_tokens(context, column)
        return unpooled_tokens(self.tokenizer(context), prompt, max_tokens)

    @override
    def reads_unattended(self, context: TaskContext) -> bool:
        return self.representation.reads_unattended(context)

    @override
    def rows(self, context: TaskContext, samples: Sequence[TextGroup]) -> TokenizedRows:
        is_labelled = samples[0].label is not None
        is_pair = compares_pairs(context, is_labelled=is_labelled)
        columns = list[TokenizedTexts]()
        for column in range(len(samples[0].texts)):
            columns.append(self._tokenize(context, samples, column, is_pair=is_pair))
        values: dict[str, NDArray[Any]] = {TEXT_NUMBERS: text_numbers(samples)}
        if is_labelled:
            values[LABELS] = np.array([context.target(sample) for sample in samples])
        rows = TokenizedRows(
            columns[0].starts,
            columns[0].arrays,
            values,
            {},
            sum(texts.truncated for texts in columns),
            others=tuple(columns[1:]),
        )
        return self.representation.extend_rows(context, rows)

    def _tokenize(
        self, context: TaskContext, samples: Sequence[TextGroup], column: int, *, is_pair: bool
    ) -> TokenizedTexts:
        """Tokenize a column of texts after its prompt."""
        prompt = self.prompt(context, column, is_pair=is_pair)
        locations = [sample.location for sample in samples]
        tokenized = tokenize(
            [prompt + sample.texts[column] for sample in samples],
            self.tokenizer(context),
            (column_name(IDS, column),),
            self.representation.max_tokens(context, column),
            locations=locations,
        )
        excluded = self.prompt_tokens(context, column, is_pair=is_pair)
        is_empty = np.diff(tokenized.starts) <= excluded
        if is_empty.any():
            raise UsageError(
                f"{locations[int(is_empty.argmax())]} has no tokens after the prompt",
                "leave the row out",
            )
        return tokenized

    @override
    def train_order(self, context: TaskContext, rows: TokenizedRows) -> EpochShuffle:
        if not run_loss(context).separates_texts:
            return super().train_order(context, rows)
        size = context.settings.batch_size
        if len(rows) < size:
            raise UsageError(
                f"{len(rows)} samples to train on are less than a batch of {size}",
                "--set batch_size=N, or more data",
            )
        return NoDuplicatesOrder(rows.values[TEXT_NUMBERS], size, context.settings.seed)

    @override
    def masks(self, context: TaskContext) -> dict[str, str | None]:
        masks: dict[str, str | None] = {}
        for column in range(self.columns(context)):
            masks[column_name(IDS, column)] = column_name(MASK, column)
        return masks

    @override
    def padding(self, context: TaskContext) -> dict[str, int]:
        return dict.fromkeys(self.masks(context), context.pad_id)

    @override
    def forward(
        self, context: TaskContext, model: nn.Module, batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Return the embeddings of all texts, (columns, rows, ...).

        With classes, also their logits at each number of dimensions, (dims, rows, classes).
        """
        module: Any = model
        columns: list[Tensor] = []
        for column in range(self.columns(context)):
            if column_name(IDS, column) in batch:
                columns.append(self._embed(context, module, batch, column))
        is_split = run_loss(context).compares_samples and splits_micro_batches(context)
        vectors = self.representation.stack(context, columns, is_split=is_split)
        logits = {context.name: vectors}
        if module.classifier is not None:
            # Zeros in place of the other dimensions select the weights of the first ones.
            width = self.representation.width(context)
            features: list[Tensor] = []
            for dim, _ in context.options.cuts:
                part = cut(vectors, dim)
                pair = F.pad(part, (0, width - part.shape[-1]))
                features.append(pair_features(pair[0], pair[1]))
            logits[CLASSES] = at_least_float32(module.classifier(torch.stack(features)))
        return Outputs(logits)

    def _embed(
        self, context: TaskContext, model: Any, batch: "Mapping[str, Tensor]", column: int
    ) -> "Tensor":
        """Return the embeddings of a column, in mini-batches if they are set.

        The backward pass computes the activations of a mini-batch again, with the same dropout,
        once the gradients of all embeddings are known.
        """
        is_pair = compares_pairs(context, is_labelled=LABELS in batch)
        prompt_tokens = self.prompt_tokens(context, column, is_pair=is_pair)
        size = context.options.mini_batch_size
        rows = len(batch[column_name(IDS, column)])
        embed = self.representation.embed
        if size is None or size >= rows:
            return embed(context, model, batch, column, prompt_tokens)
        parts: list[Tensor] = []
        for start in range(0, rows, size):
            part = {name: tensor[start : start + size] for name, tensor in batch.items()}
            mask = part.get(column_name(MASK, column))
            if mask is not None:
                longest = int(mask.sum(1).max())
                for name in (column_name(IDS, column), column_name(MASK, column)):
                    part[name] = part[name][:, :longest]
            parts.append(
                checkpoint(embed, context, model, part, column, prompt_tokens, use_reentrant=False)
            )
        return self.representation.join(parts)


@dataclass(frozen=True)
class EmbeddingTaskLoss(TaskLoss):
    """The loss that the option ``loss`` selects, at each number of leading dimensions.

    In training, samples are compared across all processes that share the micro-batch. The loss is
    computed in float32, whatever the precision of the run is.

    Attributes:
        representation: what the embeddings are.
    """

    representation: Representation

    @override
    def weights(self, context: TaskContext) -> Mapping[str, float]:
        return {context.name: 1.0, **self.representation.extra_weights(context)}

    @override
    def compares_samples(self, context: TaskContext) -> bool:
        if self.representation.extra_weights(context):
            return True
        has_eval_score = context.settings.data.eval_score is not None
        return run_loss(context).compares_samples or has_eval_score

    @override
    def counts(self, context: TaskContext, rows: TokenizedRows) -> "Mapping[str, NDArray[Any]]":
        values = run_loss(context).values_per_row(context.settings.data)
        counts = {context.name: np.full(len(rows), values)}
        for name in self.representation.extra_weights(context):
            counts[name] = np.ones(len(rows), np.int64)
        return counts

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        loss = batch_loss(context, batch)
        vectors: Tensor = outputs.logits[context.name]
        with torch.autocast(vectors.device.type, enabled=False):
            is_split = self.compares_samples(context) and splits_micro_batches(context)
            embedded = EmbeddedBatch(
                context,
                self.representation,
                vectors,
                batch.get(LABELS, vectors.new_zeros(0)),
                class_logits(outputs, 0),
                is_split,
            )
            losses: list[Tensor] = []
            for index, (dim, weight) in enumerate(context.options.cuts):
                part = replace(
                    embedded, vectors=cut(vectors, dim), class_logits=class_logits(outputs, index)
                )
                losses.append(weight * loss.sum(part))
            sums = {
                context.name: torch.stack(losses).sum(),
                **self.representation.extra_sums(embedded),
            }
            measure = loss.measure
            return LossOutput(sums, predictions=measure.predictions(embedded, batch))


@dataclass(frozen=True)
class EmbeddingResults(EvaluationResults[TextGroup]):
    """The metrics that belong to the loss, or correlations on ``data.eval_score``.

    Attributes:
        representation: what the embeddings are.
    """

    representation: Representation

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        return run_measure(run_context(context)).metric_names

    @override
    def metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        run = run_context(context)
        return run_measure(run).metrics(run, self.representation, predictions)

    @override
    def mistake(self, row: Prediction) -> float | None:
        return embedding_mistake(row)

    @override
    def rows(
        self,
        context: ResultContext,
        predictions: "Mapping[str, NDArray[Any]]",
        samples: Sequence[TextGroup],
        numbers: Sequence[int],
    ) -> Iterator[Prediction]:
        run = run_context(context)
        if not predictions:
            return
        # Processes may share rows, each of which is reported once.
        sample_numbers, indices = np.unique(numbers, return_index=True)
        values = {name: array[indices] for name, array in predictions.items()}
        groups = [samples[number] for number in sample_numbers]
        yield from run_measure(run).rows(run, self.representation, values, groups)


def embedding_task(
    name: str,
    representation: Representation,
    *,
    head: str = "none",
    options_type: type[EmbeddingOptions] = EmbeddingOptions,
) -> FineTuningTask[TextGroup]:
    """Return a task that trains embeddings."""
    return FineTuningTask(
        name=name,
        head=head,
        data=EmbeddingData(name),
        inputs=EmbeddingInputs(representation),
        loss=EmbeddingTaskLoss(representation),
        results=EmbeddingResults(representation),
        model=EmbeddingModel(representation),
        options_type=options_type,
    )
