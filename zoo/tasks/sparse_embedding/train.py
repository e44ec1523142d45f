"""Sparse embeddings: SPLADE with FLOPS regularization."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import torch

from zoo.errors import UsageError
from zoo.finetuning.base import LABELS
from zoo.finetuning.rows import TokenizedRows
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.retrieval.vectors import SparseVectors
from zoo.tasks.sentence_embedding.losses import multiple_negatives
from zoo.tasks.sentence_embedding.train import TEXTS, SentenceEmbedding
from zoo.tasks.sentence_embedding.train_options import TAUGHT, EmbeddingOptions
from zoo.tokenizers.pooling import Pooling
from zoo.tokenizers.sentence_modules import SpladePoolingModule
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.families.base import Family
    from zoo.tokenizers import TextTokenizer
    from zoo.training.state.pretrained import PretrainedInit

SPARSE = "SparseEncoder"
LOSSES = ("multiple-negatives", *TAUGHT)
# loss terms of the regularization of documents and queries
DOCUMENTS, QUERIES = "document_flops", "query_flops"
# largest weights of a text that an evaluation keeps, and their numbers in the vocabulary
KEPT = 512


class SparseOptions(EmbeddingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``SparseEmbedding``; ``None`` takes the checkpoint's setting, if it has one."""

    scale: float = 1.0  # factor of dot products in ``multiple-negatives``
    temperature: float = 2.0  # of the probabilities in ``kl-div``
    document_regularizer_weight: float = 3e-5  # weight of the FLOPS of texts and negatives
    query_regularizer_weight: float = 5e-5  # weight of the FLOPS of anchors
    # fraction of the steps in which these weights grow from 0, quadratically
    regularizer_warmup_ratio: float = 1 / 3
    max_active_dims: int | None = None  # largest weights that the model keeps; losses read all

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("document_regularizer_weight", "query_regularizer_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, and has to be 0 or more")
        if not 0 <= self.regularizer_warmup_ratio <= 1:
            raise ValueError(f"regularizer_warmup_ratio is {self.regularizer_warmup_ratio}")
        if self.matryoshka is not None:
            raise ValueError("sparse embeddings are not cut at leading dimensions: no matryoshka")


class SparseEmbedding(SentenceEmbedding):
    """Similarity of sparse vectors by dot products, with the FLOPS of their weights."""

    # The weight of a word is the maximum over tokens of log(1 + relu(logit)) of the masked language
    # model (Formal et al. 2021, arXiv:2107.05720 and arXiv:2109.10086). FLOPS (Paria et al. 2020,
    # arXiv:2004.05665) is the sum over words of the squared mean weight in the micro-batch; it is a
    # loss term each for queries and documents. ``SpladeLoss`` of sentence-transformers has the
    # same.

    name: ClassVar[str] = "sparse-embedding"
    head: ClassVar[str] = "masked-lm"
    options_type: ClassVar[type[Options]] = SparseOptions

    def __init__(self, *args: Any) -> None:
        self.growth = 1.0  # of the weights of the regularization, at this step
        super().__init__(*args)
        if self.kind not in LOSSES:
            raise UsageError(f"{self.name} has no loss {self.kind}", f"it has {', '.join(LOSSES)}")

    @classmethod
    @override
    def head_in(cls, family: "Family") -> str:
        if cls.head not in family.heads():
            raise UsageError(f"the family {family.name} has no head {cls.head}")
        return cls.head

    @classmethod
    @override
    def resolve(cls, run: FineTuneConfig, init: "PretrainedInit | None") -> FineTuneConfig:
        """Take pooling and prompts from a sparse encoder, and none from other models."""
        checkpoints = {} if init is None else init.checkpoints
        stored = checkpoints["model"].model.pooling if "model" in checkpoints else None
        if stored is not None and stored.model_type == SPARSE:
            run = super().resolve(run, init)
            settings = {**run.task_args}
            if stored.max_active_dims is not None:
                settings.setdefault("max_active_dims", stored.max_active_dims)
            return msgspec.structs.replace(run, task_args=settings)
        return run

    @property
    @override
    def pooling(self) -> Pooling:
        options = self.options
        settings: Pooling = options.settings(self.run.max_seq_len)
        return msgspec.structs.replace(
            settings,
            modules=options.modules or (SpladePoolingModule(),),
            model_type=SPARSE,
            output="logits",
            similarity_fn_name=options.similarity_fn_name or "dot",
            max_active_dims=options.max_active_dims,
        )

    @override
    def begin_step(self, model: "nn.Module", step: int, max_steps: int) -> None:
        warmup = max(int(max_steps * self.options.regularizer_warmup_ratio), 1)
        warming = self.options.regularizer_warmup_ratio > 0 and step < warmup
        self.growth = (step / warmup) ** 2 if warming else 1.0

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        options = self.options
        return {
            self.name: 1.0,
            DOCUMENTS: options.document_regularizer_weight * self.growth,
            QUERIES: options.query_regularizer_weight * self.growth,
        }

    @property
    @override
    def loss_in_batch(self) -> bool:
        return True

    @override
    def rows(self, samples: "Sequence[Any]", tokenizer: "TextTokenizer") -> TokenizedRows:
        rows = super().rows(samples, tokenizer)
        one = np.ones(len(samples), np.int64)
        counts = {**rows.counts, DOCUMENTS: one, QUERIES: one}
        return replace(rows, counts=counts)

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        vectors: Tensor = outputs.logits[self.name]
        with torch.autocast(vectors.device.type, enabled=False):
            # (rows, columns, vocabulary) of all processes that share the micro-batch
            shared, first = self._compared(vectors.transpose(0, 1))
            everything = shared.transpose(0, 1)
            if LABELS in batch:
                total = self._sum(vectors, outputs, batch, 0)
            else:
                total = multiple_negatives(
                    vectors[0], list(everything[1:]), self.options.scale, first, unit=False
                ).sum()
            rows = vectors.shape[1]
            sums = {
                self.name: total,
                DOCUMENTS: flops(everything[1:].flatten(0, 1)) * rows,
                QUERIES: flops(everything[0]) * rows,
            }
            return LossOutput(sums, predictions=self._predictions(vectors, outputs, batch))

    @override
    def _predictions(
        self, vectors: "Tensor", outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        if torch.is_grad_enabled():
            return {}
        if LABELS in batch:
            return super()._predictions(vectors, outputs, batch)
        found = {TEXTS: batch[TEXTS]}
        for name, part in zip(("anchor", "text"), vectors[:2], strict=True):
            best = part.detach().topk(min(KEPT, part.shape[-1]))
            found |= {name: best.values, f"{name}_words": best.indices.int()}
        return found

    @override
    def vectors_of(
        self, predictions: "Mapping[str, NDArray[Any]]"
    ) -> "tuple[NDArray[Any], NDArray[Any]]":
        """Return the largest 512 weights of each text and then their words, (rows, 1024)."""
        # in float64, which holds the numbers of words exactly
        anchors, texts = (
            np.concatenate([predictions[name], predictions[f"{name}_words"]], 1, dtype=np.float64)
            for name in ("anchor", "text")
        )
        return anchors, texts

    @override
    def similarity_rows(
        self, anchors: "NDArray[Any]", texts: "NDArray[Any]"
    ) -> "Iterator[tuple[NDArray[Any], float]]":
        size = self.pooling.input_width(self.config)
        with SparseVectors(self.similarity) as stored:
            for weights, words in split_rows(texts):
                stored.add_weights(words, weights)
            yield from stored.score_rows(dense_rows(anchors, size), self.dtype)


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
