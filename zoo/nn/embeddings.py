"""Input embeddings: what a token is, where it stands, and which segment it belongs to."""

from torch import Tensor, nn


class Embeddings(nn.Module):
    """The sum of learned token, position and segment embeddings, normalised.

    Args:
        vocab_size: how many tokens there are.
        max_positions: how many positions there are; a longer input is an error.
        type_vocab_size: how many kinds of segment there are.
        hidden_size: width of each embedding.
        layer_norm_eps: added to the variance in the norm.
        dropout: probability of dropping an element of the result in training.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        max_positions: int,
        type_vocab_size: int,
        hidden_size: int,
        layer_norm_eps: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, hidden_size)
        self.positions = nn.Embedding(max_positions, hidden_size)
        self.types = nn.Embedding(type_vocab_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Embed token numbers.

        Args:
            input_ids: (batch, tokens), int64.
            token_type_ids: (batch, tokens), int64; ``None`` where all are of segment 0.

        Returns:
            (batch, tokens, hidden).
        """
        where = self.positions.weight[: input_ids.shape[1]]  # (tokens, hidden): a view
        types = self.types.weight[0] if token_type_ids is None else self.types(token_type_ids)
        x = self.tokens(input_ids) + (where + types)
        return self.dropout(self.norm(x))  # type: ignore[no-any-return]
