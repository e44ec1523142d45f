"""Training of sparse embeddings: SPLADE with FLOPS regularization."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import torch

from zoo.errors import UsageError
from zoo.finetuning.embeddings.options import EmbeddingOptions
from zoo.finetuning.embeddings.representation import EmbeddedBatch, Representation
from zoo.finetuning.embeddings.task import embedding_task
from zoo.finetuning.task import FineTuningTask, TaskContext
from zoo.overrides import override
from zoo.sentence_models.modules import SpladePoolingModule
from zoo.sentence_models.pooling import Pooling
from zoo.tasks.retrieval.vectors import SparseVectors
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.families.base import Family

SPARSE = "SparseEncoder"
# Loss terms of the regularization of documents and queries.
DOCUMENTS = "document_flops"
QUERIES = "query_flops"
MAX_KEPT_WEIGHTS = 512  # The largest weights of a text that an evaluation keeps.


class SparseOptions(EmbeddingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of sparse embeddings; ``None`` takes the checkpoint's setting, if it has one."""

    document_regularizer_weight: float = 3e-5  # Weight of the FLOPS of texts and negatives.
    query_regularizer_weight: float = 5e-5  # Weight of the FLOPS of anchors.
    # The fraction of the steps in which these weights grow from 0, quadratically.
    regularizer_warmup_ratio: float = 1 / 3
    # Number of the largest weights that the model keeps; losses read all.
    max_active_dims: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("document_regularizer_weight", "query_regularizer_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, and has to be 0 or more")
        if not 0 <= self.regularizer_warmup_ratio <= 1:
            raise ValueError(f"regularizer_warmup_ratio is {self.regularizer_warmup_ratio}")
        if self.matryoshka is not None:
            raise ValueError("sparse embeddings are not cut at leading dimensions: no matryoshka")


@dataclass(frozen=True)
class SparseRepresentation(Representation):
    """A weight for each word of the vocabulary, compared by dot products.

    The weight of a word is the maximum over tokens of log(1 + relu(logit)) of the masked language
    model (Formal et al. 2021, arXiv:2107.05720 and arXiv:2109.10086). FLOPS (Paria et al. 2020,
    arXiv:2004.05665) is the sum over words of the squared mean weight in the micro-batch; it is a
    loss term each for queries and documents. ``SpladeLoss`` of sentence-transformers has the same.
    """

    is_dense: ClassVar[bool] = False

    @override
    def resolve_head(self, task: FineTuningTask[Any], family: "Family") -> str:
        if task.head not in family.heads():
            raise UsageError(f"the family {family.name} has no head {task.head}")
        return task.head

    @override
    def resolve_settings(self, settings: FineTuneConfig, pooling: Pooling | None) -> FineTuneConfig:
        """Take pooling and prompts from a sparse encoder, and none from other models."""
        if pooling is None or pooling.model_type != SPARSE:
            return settings
        resolved = super().resolve_settings(settings, pooling)
        options = dict(resolved.task_args)
        if pooling.max_active_dims is not None:
            options.setdefault("max_active_dims", pooling.max_active_dims)
        return msgspec.structs.replace(resolved, task_args=options)

    @override
    def pooling(self, context: TaskContext) -> Pooling:
        options: SparseOptions = context.options
        return msgspec.structs.replace(
            options.settings(context.max_tokens),
            modules=options.modules or (SpladePoolingModule(),),
            model_type=SPARSE,
            output="logits",
            similarity_fn_name=options.similarity_fn_name or "dot",
            max_active_dims=options.max_active_dims,
        )

    @override
    def score_matrix(
        self,
        context: TaskContext,
        anchors: "Tensor",
        columns: "Sequence[Tensor]",
        scale: float,
    ) -> "Tensor":
        """Return the scaled dot product of each anchor and each text."""
        return scale * anchors @ torch.cat(list(columns)).T

    @override
    def extra_weights(self, context: TaskContext) -> Mapping[str, float]:
        """Return the weights of the regularization, which grow at the beginning of a run."""
        options: SparseOptions = context.options
        growth = 1.0
        warmup_steps = max(int(context.max_steps * options.regularizer_warmup_ratio), 1)
        if context.max_steps and options.regularizer_warmup_ratio > 0:
            growth = min(context.step / warmup_steps, 1.0) ** 2
        return {
            DOCUMENTS: options.document_regularizer_weight * growth,
            QUERIES: options.query_regularizer_weight * growth,
        }

    @override
    def extra_sums(self, batch: EmbeddedBatch) -> "Mapping[str, Tensor]":
        # (rows, columns, vocabulary) of all processes that share the micro-batch.
        shared, _ = batch.gather(batch.vectors.transpose(0, 1))
        columns = shared.transpose(0, 1)
        rows = batch.vectors.shape[1]
        return {
            DOCUMENTS: flops(columns[1:].flatten(0, 1)) * rows,
            QUERIES: flops(columns[0]) * rows,
        }

    @override
    def retrieval_vectors(self, context: TaskContext, vectors: "Tensor") -> "dict[str, Tensor]":
        """Return the largest weights of each text, and their words."""
        if torch.is_grad_enabled():
            return {}
        kept_tensors: dict[str, Tensor] = {}
        for name, column in zip(("anchor", "text"), vectors[:2], strict=True):
            best = column.topk(min(MAX_KEPT_WEIGHTS, column.shape[-1]))
            kept_tensors[name] = best.values
            kept_tensors[f"{name}_words"] = best.indices.int()
        return kept_tensors

    @override
    def retrieved(
        self, predictions: "Mapping[str, NDArray[Any]]"
    ) -> "tuple[NDArray[Any], NDArray[Any]]":
        """Return the largest weights of each text and then their words, (rows, 1024)."""
        texts: list[NDArray[Any]] = []
        for name in ("anchor", "text"):
            parts = [predictions[name], predictions[f"{name}_words"]]
            # float64 holds the numbers of words exactly.
            texts.append(np.concatenate(parts, 1, dtype=np.float64))
        return texts[0], texts[1]

    @override
    def similarity_rows(
        self, context: TaskContext, anchors: "NDArray[Any]", texts: "NDArray[Any]"
    ) -> "Iterator[tuple[NDArray[Any], float]]":
        pooling = self.pooling(context)
        size = pooling.input_width(context.config)
        with SparseVectors(pooling.similarity_fn_name) as index:
            for weights, words in split_rows(texts):
                index.add_weights(words, weights)
            yield from index.score_rows(dense_rows(anchors, size), context.compute_dtype)


def flops(weights: "Tensor") -> "Tensor":
    """Return the sum over words of the squared mean of weights, (texts, vocabulary), a scalar."""
    return weights.mean(0).square().sum()


def split_rows(rows: "NDArray[Any]") -> "Iterator[tuple[NDArray[Any], NDArray[Any]]]":
    """Yield the weights of each text and their words, (words,) each, of ``vectors_of``."""
    for row in rows:
        weights, words = np.split(row, 2)
        yield weights[weights > 0].astype(np.float32), words[weights > 0].astype(np.int32)


def dense_rows(rows: "NDArray[Any]", size: int) -> "Iterator[NDArray[np.float32]]":
    """Yield the weights of all words of each text, (vocabulary,)."""
    for weights, words in split_rows(rows):
        vector = np.zeros(size, np.float32)
        vector[words] = weights
        yield vector


SPARSE_EMBEDDING = embedding_task(
    "sparse-embedding",
    SparseRepresentation(loss_defaults={"scale": 1.0, "temperature": 2.0}),
    head="masked-lm",
    options_type=SparseOptions,
)
