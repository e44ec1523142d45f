"""Input embeddings: what a token is, where it stands, and which segment it belongs to."""

from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn


class Embeddings(nn.Module):
    """The sum of learned token, position and segment embeddings, normalised or as it is.

    Args:
        vocab_size: how many tokens there are.
        max_positions: how many positions there are; a longer input is an error. 0 where nothing
            is added for where a token stands.
        type_vocab_size: how many kinds of segment there are; 0 where none are told apart.
        hidden_size: width of each embedding.
        layer_norm_eps: added to the variance in the norm; ``None`` for no norm.
        dropout: probability of dropping an element of the result in training.
        project_to: width to which a linear map takes the result, last of all; by default there
            is none.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        max_positions: int,
        type_vocab_size: int,
        hidden_size: int,
        layer_norm_eps: float | None,
        dropout: float,
        project_to: int | None = None,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, hidden_size)
        positions = nn.Embedding(max_positions, hidden_size) if max_positions else None
        self.positions: Any = positions
        self.types = nn.Embedding(type_vocab_size, hidden_size) if type_vocab_size else None
        eps = layer_norm_eps
        self.norm = None if eps is None else nn.LayerNorm(hidden_size, eps=eps)
        self.dropout = nn.Dropout(dropout)
        self.project = None if project_to is None else nn.Linear(hidden_size, project_to)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Embed token numbers.

        Args:
            input_ids: (batch, tokens), int64.
            token_type_ids: (batch, tokens), int64; ``None`` where all are of segment 0.
            position_ids: (batch, tokens), int64, from 0 in each of the texts that share a row;
                ``None`` where each row is one text.

        Returns:
            (batch, tokens, hidden).

        Raises:
            ValueError: segments are given where none are told apart.
        """
        added: list[Tensor] = []
        if self.positions is not None:
            added.append(self.where(input_ids) if position_ids is None else self.at(position_ids))
        if self.types is not None:
            every = self.types.weight[0] if token_type_ids is None else self.types(token_type_ids)
            added.append(every)
        elif token_type_ids is not None:
            raise ValueError("token_type_ids are given, and this model tells no segments apart")
        x = self.tokens(input_ids)
        x = x + reduce(torch.add, added) if added else x
        x = self.dropout(x if self.norm is None else self.norm(x))
        return x if self.project is None else self.project(x)  # type: ignore[no-any-return]

    def where(self, input_ids: Tensor) -> Tensor:
        """Embed where each token stands: here the first at 0, the next at 1, ...

        Returns:
            (tokens, hidden) or (batch, tokens, hidden).
        """
        table: Tensor = self.positions.weight
        return table[: input_ids.shape[1]]  # a view

    def at(self, position_ids: Tensor) -> Tensor:
        """Embed positions that are counted from 0, (batch, tokens, hidden)."""
        return self.positions(position_ids)  # type: ignore[no-any-return]
