"""Heads of models: poolers, classifiers and language-model heads, and what models share of them."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.attention.softcap import softcap
from zoo.nn.kernels.int8_linear import int8_linear, pack_int8
from zoo.nn.kernels.onednn_linear import linear
from zoo.nn.kernels.small_batch_linear import optimize_for_inference, small_batch_linear
from zoo.nn.layers.activations import activation
from zoo.nn.layers.dropout import Dropout


def gather_rows(hidden: Tensor, positions: Tensor) -> Tensor:
    """Return the vector at one position of each row.

    Args:
        hidden: (batch, tokens, hidden).
        positions: (batch,), int64.

    Returns:
        (batch, hidden).
    """
    return hidden[torch.arange(positions.shape[0], device=positions.device), positions]


class Pooler(nn.Linear):
    """Pools a row by its first token, through a linear map and an activation function.

    Args:
        hidden_size: width of input and output.
        act: name of the activation function.
        dropout: dropout probability of the input.
    """

    def __init__(self, hidden_size: int, act: str = "tanh", dropout: float = 0.0) -> None:
        super().__init__(hidden_size, hidden_size)
        self.dropout = Dropout(dropout)
        self.act = activation(act)

    def forward(self, hidden: Tensor) -> Tensor:
        """Pool (batch, tokens, hidden) to (batch, hidden)."""
        return self.act(super().forward(self.dropout(hidden[:, 0])))


class FirstTokenPooler(nn.Module):
    """Pools a row by its first token."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Pool (batch, tokens, hidden) to (batch, hidden)."""
        return hidden[:, 0]


class EmbeddingPooler(FirstTokenPooler):
    """Pools a row as a sentence encoder does: its first vector, which may be a mean of tokens."""

    def __init__(self, *, unit: bool) -> None:
        super().__init__()
        self.unit = unit

    def forward(self, hidden: Tensor) -> Tensor:
        """Pool (batch, tokens, hidden) to (batch, hidden)."""
        pooled = super().forward(hidden)
        return F.normalize(pooled, dim=-1) if self.unit else pooled


class LinearHead(nn.Linear):
    """A linear map after dropout.

    Args:
        hidden_size: width of the input.
        outputs: width of the output.
        dropout: dropout probability of the input.
    """

    def __init__(self, hidden_size: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__(hidden_size, outputs)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (..., hidden) to (..., outputs)."""
        return super().forward(self.dropout(hidden))


class DenseHead(nn.Module):
    """Two linear maps with an activation function between them.

    Args:
        hidden_size: width of the input and between the maps.
        outputs: width of the output.
        act: name of the activation function.
        dropout: dropout probability of the input.
        inner_dropout: dropout probability between the maps.
    """

    def __init__(
        self,
        hidden_size: int,
        outputs: int,
        *,
        act: str,
        dropout: float = 0.0,
        inner_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.inner_dropout = Dropout(inner_dropout)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.act = activation(act)
        self.out = nn.Linear(hidden_size, outputs)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (..., hidden) to (..., outputs)."""
        inner = self.act(self.dense(self.dropout(hidden)))
        return self.out(self.inner_dropout(inner))  # type: ignore[no-any-return]


class NormedHead(nn.Module):
    """A linear map without bias, an activation function and a norm, before the last linear map.

    Args:
        hidden_size: width of the input and between the maps.
        outputs: width of the output.
        act: name of the activation function.
        layer_norm_eps: epsilon of the norm.
        dropout: dropout probability of the input of the last map.
        bias: whether the last map has a bias.
    """

    def __init__(
        self,
        hidden_size: int,
        outputs: int,
        *,
        act: str,
        layer_norm_eps: float,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size, bias=False)
        self.act = activation(act)
        self.norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps, bias=False)
        self.dropout = Dropout(dropout)
        self.out = nn.Linear(hidden_size, outputs, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (..., hidden) to (..., outputs)."""
        inner = self.norm(self.act(self.dense(hidden)))
        return self.out(self.dropout(inner))  # type: ignore[no-any-return]


class VocabularyProjection(NamedTuple):
    """The last step of a language-model head, whose result is the logits."""

    hidden: Tensor  # (..., width).
    weight: Tensor  # The output embeddings, (vocabulary, width).
    bias: Tensor | None = None  # (vocabulary,), or ``None``.
    # Bound of the logits, see ``zoo.nn.attention.softcap``, or ``None``.
    cap: float | Tensor | None = None

    def logits(self) -> Tensor:
        """Return the logits, (..., vocabulary)."""
        return self.bounded(linear(self.hidden, self.weight, self.bias))

    def bounded(self, products: Tensor) -> Tensor:
        """Return the logits of the products with the output embeddings, (..., vocabulary)."""
        return products if self.cap is None else softcap(products, self.cap)


class MLMHead(nn.Module):
    """The head of masked language models: logits against the token embeddings.

    Args:
        hidden_size: width of the backbone.
        vocab_size: number of tokens in the vocabulary.
        act: name of the activation function.
        layer_norm_eps: epsilon of the layer norm.
        tied: whether the output embeddings are the token embeddings, an argument of ``forward``;
            else they are a parameter of the head.
        embedding_size: width of the output embeddings; ``None`` for ``hidden_size``.
        dense_bias: whether the linear map and the norm have biases.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        vocab_size: int,
        act: str,
        layer_norm_eps: float,
        tied: bool,
        embedding_size: int | None = None,
        dense_bias: bool = True,
    ) -> None:
        super().__init__()
        width = embedding_size or hidden_size
        self.dense = nn.Linear(hidden_size, width, bias=dense_bias)
        self.act = activation(act)
        self.norm = nn.LayerNorm(width, eps=layer_norm_eps, bias=dense_bias)
        self.decoder = None if tied else nn.Linear(width, vocab_size, bias=False)
        self.bias = nn.Parameter(self.dense.weight.new_zeros(vocab_size))

    def forward(self, hidden: Tensor, embeddings: nn.Embedding) -> Tensor:
        """Return the logits over the vocabulary.

        Args:
            hidden: (..., hidden).
            embeddings: the backbone's token embeddings.

        Returns:
            (..., vocabulary).
        """
        return self.project(hidden, embeddings).logits()

    def project(self, hidden: Tensor, embeddings: nn.Embedding) -> VocabularyProjection:
        """Return the projection to the logits; for the arguments, see ``forward``."""
        table = embeddings.weight if self.decoder is None else self.decoder.weight
        return VocabularyProjection(self.norm(self.act(self.dense(hidden))), table, self.bias)

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary."""
        return len(self.bias)


class OutputEmbeddings(nn.Module):
    """The head of masked language models that have no layer before the logits.

    Args:
        hidden_size: width of the backbone.
        vocab_size: number of tokens in the vocabulary.
        tied: see ``MLMHead``.
        bias: whether the logits have a bias.
    """

    def __init__(
        self, *, hidden_size: int, vocab_size: int, tied: bool, bias: bool = False
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.decoder = None if tied else nn.Linear(hidden_size, vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def forward(self, hidden: Tensor, embeddings: nn.Embedding) -> Tensor:
        """Return the logits over the vocabulary; see ``MLMHead.forward``."""
        return self.project(hidden, embeddings).logits()

    def project(self, hidden: Tensor, embeddings: nn.Embedding) -> VocabularyProjection:
        """Return the projection to the logits; see ``MLMHead.project``."""
        table = embeddings.weight if self.decoder is None else self.decoder.weight
        return VocabularyProjection(hidden, table, self.bias)


class HeadMixin(nn.Module):
    """A model with a head."""

    head: nn.Module | None  # ``None`` for the bare backbone.

    def apply_head(self, hidden: Tensor, *head_args: Any) -> Tensor:
        """Run the head on vectors, (..., hidden)."""
        assert self.head is not None, "a model without a head has no such outputs"
        return self.head(hidden, *head_args)  # type: ignore[no-any-return]


class ClassifierMixin(HeadMixin):
    """A model that classifies vectors: (..., hidden) to (..., labels)."""

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the logits."""
        return {"logits": self.apply_head(hidden)}


class SpanMixin(HeadMixin):
    """A model for extractive question answering, by a head with two outputs per token."""

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return start and end logits, (batch, tokens) each, for (batch, tokens, hidden)."""
        start, end = self.apply_head(hidden).unbind(dim=-1)
        return {"start_logits": start, "end_logits": end}


class LMHeadMixin(nn.Module):
    """A language model whose logits are products with the output embeddings."""

    embeddings: Any  # Input embeddings; ``embeddings.tokens`` are the tied output embeddings.
    head: Any  # A linear map with output embeddings of its own; ``None`` for tied ones.
    packed_output: Any = None  # The output embeddings in 8 bits, after ``quantize_output``.
    logit_cap: float | None = None  # Bound of the logits; see ``VocabularyProjection``.

    @property
    def output_embeddings(self) -> Tensor:
        """The output embeddings, (vocabulary, hidden)."""
        table = self.embeddings.tokens if self.head is None else self.head
        return table.weight  # type: ignore[no-any-return]

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits over the vocabulary: (..., hidden) to (..., vocabulary)."""
        projection = self.project(hidden)
        bias = projection.bias
        if self.packed_output is None:
            scores = small_batch_linear(projection.hidden, projection.weight, bias)
        else:
            scores = int8_linear(projection.hidden, self.packed_output)
            if bias is not None:
                scores = scores + bias
        return projection.bounded(scores)

    def project(self, hidden: Tensor) -> VocabularyProjection:
        """Return the projection to the logits of (..., hidden)."""
        return VocabularyProjection(hidden, self.output_embeddings, cap=self.logit_cap)

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary."""
        return len(self.output_embeddings)

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the logits for (batch, tokens, hidden)."""
        return {"logits": self.scores(hidden)}

    def optimize_for_inference(self) -> None:
        """Prepare the model for generation on a CPU; see ``small_batch_linear``."""
        optimize_for_inference(self)

    def quantize_output(self) -> None:
        """Score with output embeddings in 8 bits; see ``zoo.nn.kernels.int8_linear``."""
        self.packed_output = pack_int8(self.output_embeddings)
