"""What DeBERTa is put together from: embeddings, and blocks with or without a convolution."""

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.activations import activation
from zoo.nn.ffn import FeedForward
from zoo_deberta.attention import Context, DisentangledAttention
from zoo_deberta.config import DebertaConfig


class Embeddings(nn.Module):
    """What each token is; where it stands and its segment only if the configuration says so."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        width, kinds = config.hidden_size, config.type_vocab_size
        self.tokens = nn.Embedding(config.vocab_size, width)
        where = config.position_biased_input
        self.positions = nn.Embedding(config.max_positions, width) if where else None
        self.types = nn.Embedding(kinds, width) if kinds else None
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        real: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        """Embed token numbers as (batch, tokens, hidden); zeros where nothing is ``real``."""
        x = self.tokens(input_ids)
        if self.positions is not None:
            x = x + places(self.positions, input_ids.shape[1], position_ids)
        if self.types is not None:
            own = self.types.weight[0] if token_type_ids is None else self.types(token_type_ids)
            x = x + own
        return self.dropout(_masked(self.norm(x), real))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and a feed-forward network, each normalised after its residual sum."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.attention = DisentangledAttention(config)
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.ffn = FeedForward(
            hidden_size=width, intermediate_size=config.intermediate_size, act=config.activation
        )
        self.ffn_norm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context, queries: Tensor | None = None) -> Tensor:
        """Transform (batch, tokens, hidden) to the same shape; see the attention."""
        attended = self.dropout(self.attention(x, context, queries))
        y = self.attention_norm((x if queries is None else queries) + attended)
        return self.ffn_norm(y + self.dropout(self.ffn(y)))  # type: ignore[no-any-return]


class ConvolutionBlock(Block):
    """The first block of large models, which looks at each token's neighbours besides."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        width, kernel = config.hidden_size, config.conv_kernel_size
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=config.conv_groups)
        self.conv_act = activation(config.conv_activation)
        self.conv_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, x: Tensor, context: Context, queries: Tensor | None = None) -> Tensor:
        """See ``Block``. Where queries are given, it decodes, and has no convolution."""
        y = super().forward(x, context, queries)
        if queries is not None:
            return y
        near = _masked(self._neighbours(x, context.texts), context.real)
        near = self.conv_act(self.dropout(near))
        return _masked(self.conv_norm(y + near), context.real)

    def _neighbours(self, x: Tensor, texts: Tensor | None) -> Tensor:
        """Convolve (batch, tokens, hidden); of a row's texts, each as if it stood alone."""
        if texts is None:
            return self.conv(x.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]
        (kernel,), tokens = self.conv.kernel_size, x.shape[1]
        around = F.pad(x, (0, 0, kernel // 2, kernel // 2))
        owners = F.pad(texts, (kernel // 2, kernel // 2))
        found = x.new_zeros(())
        for step in range(kernel):
            there = slice(step, step + tokens)
            seen = around[:, there] * (owners[:, there] == texts)[..., None]
            weight = self.conv.weight[:, :, step : step + 1]
            part = F.conv1d(seen.transpose(1, 2), weight, groups=self.conv.groups)
            found = found + part.transpose(1, 2)
        return found if self.conv.bias is None else found + self.conv.bias


def _masked(x: Tensor, real: Tensor | None) -> Tensor:
    return x if real is None else x * real


def places(table: nn.Embedding, tokens: int, position_ids: Tensor | None) -> Tensor:
    """Embed where tokens stand; without positions, a row is one text."""
    if position_ids is None:
        return table.weight[:tokens]
    return table(position_ids)  # type: ignore[no-any-return]
