"""What stands on top of a trunk: predictions for tokens, for spans, for whole texts."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.layers.activations import activation
from zoo.nn.layers.small_batch_linear import optimize_for_inference, small_batch_linear


def gather_rows(hidden: Tensor, positions: Tensor) -> Tensor:
    """Take one vector of each row.

    Args:
        hidden: (batch, tokens, hidden).
        positions: (batch,), int64.

    Returns:
        (batch, hidden).
    """
    return hidden[torch.arange(positions.shape[0], device=positions.device), positions]


class Pooler(nn.Linear):
    """A vector for the whole text: the first token's, through a linear map and an activation.

    Args:
        hidden_size: width of the input and the output.
        act: name of the activation.
        dropout: probability of dropping an element of the input in training.
    """

    def __init__(self, hidden_size: int, act: str = "tanh", dropout: float = 0.0) -> None:
        super().__init__(hidden_size, hidden_size)
        self.dropout, self.act = nn.Dropout(dropout), activation(act)

    def forward(self, hidden: Tensor) -> Tensor:
        """Pool (batch, tokens, hidden) into (batch, hidden)."""
        return self.act(super().forward(self.dropout(hidden[:, 0])))


class FirstTokenPooler(nn.Module):
    """A vector for the whole text: the first token's, as it is."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Take (batch, hidden) from (batch, tokens, hidden)."""
        return hidden[:, 0]


class LinearHead(nn.Linear):
    """One linear map, after dropout.

    Args:
        hidden_size: width of the input.
        outputs: width of the output.
        dropout: probability of dropping an element of the input in training.
    """

    def __init__(self, hidden_size: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__(hidden_size, outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (..., hidden) to (..., outputs)."""
        return super().forward(self.dropout(hidden))


class DenseHead(nn.Module):
    """Two linear maps with an activation between them.

    Args:
        hidden_size: width of the input and between the maps.
        outputs: width of the output.
        act: name of the activation.
        dropout: probability of dropping an element of the input in training.
        inner_dropout: the same between the maps.
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
        self.dropout, self.inner_dropout = nn.Dropout(dropout), nn.Dropout(inner_dropout)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.act = activation(act)
        self.out = nn.Linear(hidden_size, outputs)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (..., hidden) to (..., outputs)."""
        inner = self.act(self.dense(self.dropout(hidden)))
        return self.out(self.inner_dropout(inner))  # type: ignore[no-any-return]


class MLMHead(nn.Module):
    """Scores over the vocabulary for each token, by likeness to the token embeddings.

    Args:
        hidden_size: width of the trunk.
        embedding_size: width of the token embeddings, where it is not the trunk's.
        vocab_size: how many tokens there are.
        act: name of the activation.
        layer_norm_eps: added to the variance in the norm.
        tied: score against the trunk's token embeddings, which ``forward`` is given. Otherwise
            the head has a table of its own.
        embedding_size: width of that table, if it is not ``hidden_size``.
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
    ) -> None:
        super().__init__()
        width = embedding_size or hidden_size
        self.dense = nn.Linear(hidden_size, width)
        self.act = activation(act)
        self.norm = nn.LayerNorm(width, eps=layer_norm_eps)
        self.decoder = None if tied else nn.Linear(width, vocab_size, bias=False)
        self.bias = nn.Parameter(self.dense.weight.new_zeros(vocab_size))

    def forward(self, hidden: Tensor, embeddings: nn.Embedding) -> Tensor:
        """Score every token of the vocabulary at every position.

        Args:
            hidden: (..., hidden).
            embeddings: the trunk's token embeddings.

        Returns:
            (..., vocabulary).
        """
        table = embeddings.weight if self.decoder is None else self.decoder.weight
        return F.linear(self.norm(self.act(self.dense(hidden))), table, self.bias)


class HeadMixin(nn.Module):
    """A part of models: a head that reads vectors.

    Attributes:
        head: the head, or ``None`` where there is nothing to read.
    """

    head: nn.Module | None

    def apply_head(self, hidden: Tensor, *more: Any) -> Tensor:
        """Run the head on vectors, (..., hidden)."""
        assert self.head is not None, "a trunk without a head gives vectors alone"
        return self.head(hidden, *more)  # type: ignore[no-any-return]


class ClassifierMixin(HeadMixin):
    """A part of models: what a head says of each vector, (..., hidden) to (..., labels)."""

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the model's outputs for vectors that the head reads."""
        return {"logits": self.apply_head(hidden)}


class SpanMixin(HeadMixin):
    """A part of models: where in a text an answer starts and ends, by a head of width 2."""

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the model's outputs, (batch, tokens) each, for (batch, tokens, hidden)."""
        start, end = self.apply_head(hidden).unbind(dim=-1)
        return {"start_logits": start, "end_logits": end}


class LMHeadMixin(nn.Module):
    """A part of models that write: scores of what comes next, by likeness to the token embeddings.

    Attributes:
        embeddings: its ``tokens`` are the embeddings.
        head: a linear map whose table is looked at in their place, or ``None``.
    """

    embeddings: Any
    head: Any

    @property
    def output_embeddings(self) -> Tensor:
        """What hidden vectors are compared with, (vocabulary, hidden)."""
        table = self.embeddings.tokens if self.head is None else self.head
        return table.weight  # type: ignore[no-any-return]

    def scores(self, hidden: Tensor) -> Tensor:
        """Score every token of the vocabulary: (..., hidden) to (..., vocabulary)."""
        return small_batch_linear(hidden, self.output_embeddings)

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the model's outputs for vectors, (batch, tokens, hidden)."""
        return {"logits": self.scores(hidden)}

    def optimize_for_inference(self) -> None:
        """Prepare to generate on a CPU."""
        optimize_for_inference(self)
