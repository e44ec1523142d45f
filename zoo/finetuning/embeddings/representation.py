"""What an embedding is: a dense vector, a sparse one, or a vector for each token."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import torch
from torch.nn import functional as F

from zoo.errors import UsageError
from zoo.finetuning.embeddings.options import stored_options
from zoo.finetuning.task import FineTuningTask, TaskContext
from zoo.inference.processing.similarity import pairwise_similarity, similarity_rows
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import Outputs
from zoo.sentence_models.modules import SENTENCE_VECTOR
from zoo.sentence_models.pooling import Pooling
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.distributed.parallelize import gather_rows, process_count

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.families.base import Family
    from zoo.finetuning.rows import TokenizedRows

IDS = "input_ids"
MASK = "attention_mask"
EMBED = "embed"  # The task of a head that embeds.


def column_name(name: str, number: int) -> str:
    """Return the name of a tensor of one of the texts of a row; the first has no number."""
    return f"{name}_{number}" if number else name


@dataclass(frozen=True)
class Representation:
    """Dense vectors of texts, and the base class of other representations.

    Attributes:
        is_dense: whether a text has one dense vector, which every loss compares.
        loss_defaults: settings of losses that differ from the losses' own defaults.
    """

    is_dense: ClassVar[bool] = True
    loss_defaults: Mapping[str, Any] = field(default_factory=dict)

    def resolve_head(self, task: FineTuningTask[Any], family: "Family") -> str:
        """Return the family's head that embeds texts; raises ``UsageError``."""
        heads = [name for name, head in family.heads().items() if EMBED in head.tasks]
        if not heads:
            raise UsageError(f"no head of the family {family.name} embeds texts")
        return task.head if task.head in heads else heads[0]

    def resolve_settings(self, settings: FineTuneConfig, pooling: Pooling | None) -> FineTuneConfig:
        """Take pooling, prompts and similarity from the checkpoint where they are not set."""
        options = {name: v for name, v in settings.task_args.items() if v is not None}
        return msgspec.structs.replace(settings, task_args={**stored_options(pooling), **options})

    def pooling(self, context: TaskContext) -> Pooling:
        """Return the settings of the final model."""
        pooling: Pooling = context.options.settings(context.max_tokens)
        return pooling

    def width(self, context: TaskContext) -> int:
        """Return the number of dimensions of an embedding."""
        pooling = self.pooling(context)
        return pooling.features(pooling.input_width(context.config))[SENTENCE_VECTOR].width

    def require_valid(self, context: TaskContext) -> None:
        """Check options against the model; raises ``UsageError``."""

    def reads_unattended(self, context: TaskContext) -> bool:
        """Return whether outputs at tokens outside of the attention mask are read."""
        return False

    def max_tokens(self, context: TaskContext, column: int) -> int:
        """Return the number of tokens that texts of a column are truncated to."""
        return context.max_tokens

    def extend_rows(self, context: TaskContext, rows: "TokenizedRows") -> "TokenizedRows":
        """Return tokenized rows with what the representation adds; by default unchanged."""
        return rows

    def embed(
        self,
        context: TaskContext,
        model: Any,
        batch: "Mapping[str, Tensor]",
        column: int,
        prompt_tokens: int,
    ) -> "Tensor":
        """Return the embeddings of a column of texts.

        Args:
            context: the run.
            model: a ``SentenceEncoder``.
            batch: the tensors of the batch.
            column: number of the column.
            prompt_tokens: number of tokens of the prompt that are not pooled.

        Returns:
            (rows, dimensions), or (rows, tokens, dimensions); float32.
        """
        ids = batch[column_name(IDS, column)]
        mask = batch.get(column_name(MASK, column))
        inputs = {context.input_names[0]: ids}
        if mask is not None and MASK in context.input_names:
            inputs[MASK] = mask
        pooling = self.pooling(context)
        hidden = at_least_float32(model.backbone(**inputs)[pooling.output])
        pooled = torch.ones_like(ids) if mask is None else mask
        features = model.sentence_modules(hidden, pooled, prompt_tokens=prompt_tokens)
        return features[SENTENCE_VECTOR]  # type: ignore[no-any-return]

    def join(self, parts: "list[Tensor]") -> "Tensor":
        """Return the embeddings of mini-batches of a column as one tensor."""
        return torch.cat(parts)

    def stack(self, context: TaskContext, columns: "list[Tensor]", *, is_split: bool) -> "Tensor":
        """Return the embeddings of all columns as one tensor.

        Args:
            context: the run.
            columns: embeddings of each column.
            is_split: whether other processes have rows of the same micro-batch.
        """
        return torch.stack(columns)

    def score_matrix(
        self,
        context: TaskContext,
        anchors: "Tensor",
        columns: "Sequence[Tensor]",
        scale: float,
    ) -> "Tensor":
        """Return the scaled similarity of each anchor to each text, here the cosine."""
        texts = F.normalize(torch.cat(list(columns)), dim=-1)
        return scale * F.normalize(anchors, dim=-1) @ texts.T

    def margins(self, context: TaskContext, vectors: "Tensor") -> "Tensor":
        """Return the margins between texts and negatives, (rows, negatives), by dot products."""
        anchors = vectors[0]
        text_scores = (anchors * vectors[1]).sum(-1)
        negative_scores = (anchors * vectors[2:]).sum(-1)
        return text_scores[:, None] - negative_scores.T

    def extra_weights(self, context: TaskContext) -> Mapping[str, float]:
        """Return the weight of each further loss term; by default none."""
        return {}

    def extra_sums(self, batch: "EmbeddedBatch") -> "Mapping[str, Tensor]":
        """Return the sums of the further loss terms."""
        return {}

    def metric_vectors(self, context: TaskContext, vectors: "Tensor") -> "Tensor":
        """Return the embeddings of the final model, with its leading dimensions."""
        return vectors[..., : self.pooling(context).truncate_dim]

    def metric_similarity(self, context: TaskContext, vectors: "Tensor") -> "Tensor":
        """Return the similarity of the first two texts of each row, (rows,), float64."""
        doubled = self.metric_vectors(context, vectors).double()
        similarity = self.pooling(context).similarity_fn_name
        return pairwise_similarity(doubled[0], doubled[1], similarity)

    def metric_margins(self, context: TaskContext, vectors: "Tensor") -> "Tensor":
        """Return the margins of the final model, (rows, negatives), float64."""
        return self.margins(context, self.metric_vectors(context, vectors).double())

    def retrieval_vectors(self, context: TaskContext, vectors: "Tensor") -> "dict[str, Tensor]":
        """Return what is kept of anchors and texts for retrieval, (rows, ...) each."""
        compared_vectors = self.metric_vectors(context, vectors)
        return {"anchor": compared_vectors[0], "text": compared_vectors[1]}

    def retrieved(
        self, predictions: "Mapping[str, NDArray[Any]]"
    ) -> "tuple[NDArray[Any], NDArray[Any]]":
        """Return anchors and texts from what was kept, (rows, ...) each."""
        return predictions["anchor"], predictions["text"]

    def similarity_rows(
        self, context: TaskContext, anchors: "NDArray[Any]", texts: "NDArray[Any]"
    ) -> "Iterator[tuple[NDArray[Any], float]]":
        """Yield the similarities of each anchor to all texts, and their error."""
        similarity = self.pooling(context).similarity_fn_name
        return similarity_rows(anchors, texts, similarity, context.compute_dtype)


@dataclass(frozen=True)
class EmbeddedBatch:
    """The embeddings of a batch.

    Attributes:
        context: the run.
        representation: what the embeddings are.
        vectors: embeddings of anchors, their texts and negatives, (columns, rows, dimensions), or
            (columns, rows, tokens, dimensions) for a representation by tokens; float32.
        labels: labels of the rows, (rows,) or (rows, negatives); empty without labels.
        class_logits: logits of the classes of pairs, (rows, classes), where labels are classes.
        splits_micro_batches: whether several processes share a micro-batch.
    """

    context: TaskContext
    representation: Representation
    vectors: "Tensor"
    labels: "Tensor"
    class_logits: "Tensor | None" = None
    splits_micro_batches: bool = False

    def gather(self, rows: "Tensor") -> "tuple[Tensor, int]":
        """Return the rows of all processes that share a micro-batch, and the index of the first.

        An evaluation compares the rows of one process, which are whole micro-batches.
        """
        if not (torch.is_grad_enabled() and self.splits_micro_batches):
            return rows, 0
        return gather_rows(rows), torch.distributed.get_rank() * len(rows)

    def score_matrix(
        self, anchors: "Tensor", columns: "Sequence[Tensor]", scale: float
    ) -> "Tensor":
        """Return the scaled similarity of each anchor to each text of all columns, (rows, n)."""
        return self.representation.score_matrix(self.context, anchors, columns, scale)

    def margins(self) -> "Tensor":
        """Return how much more alike an anchor and its text are than its negatives."""
        return self.representation.margins(self.context, self.vectors)


def splits_micro_batches(context: TaskContext) -> bool:
    """Return whether the processes of a run share micro-batches."""
    settings = context.settings
    processes = process_count()
    size = settings.micro_batch_size or settings.batch_size
    return processes > 1 and settings.batch_size // processes % size != 0


def class_logits(outputs: Outputs, index: int) -> "Tensor | None":
    """Return the logits of classes at the number of dimensions of an index, if there are some."""
    logits = outputs.logits.get("classes")
    return None if logits is None else logits[index]
