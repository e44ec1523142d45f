"""DeBERTa's embeddings, which are zero for padding, and its block with a convolution."""

from typing import Any

from torch import Tensor, nn

from zoo.nn import transformer
from zoo.nn.layers.activations import activation
from zoo.nn.layers.convolution import TokenConvolution
from zoo.nn.transformer import PostNormBlock
from zoo.overrides import override
from zoo_deberta.attention import Context
from zoo_deberta.config import DebertaConfig


class DebertaEmbeddings(transformer.Embeddings):
    """Input embeddings that are zero for padding."""

    @override
    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        real: Tensor | None = None,
    ) -> Tensor:
        """Return the embeddings of tokens; for ``real``, see ``Context``."""
        return masked(super().forward(input_ids, token_type_ids, position_ids), real)


class ConvolutionBlock(PostNormBlock):
    """The first block of large models, with a convolution next to attention and FFN."""

    def __init__(self, config: DebertaConfig, attention: nn.Module, **block_args: Any) -> None:
        super().__init__(attention, **block_args)
        width = config.hidden_size
        self.conv = TokenConvolution(width, config.conv_kernel_size, config.conv_groups)
        self.conv_act = activation(config.conv_activation)
        self.conv_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    @override
    def forward(self, x: Tensor, *attention_args: Any) -> Tensor:  # type: ignore[override]
        """Transform (batch, tokens, hidden) to the same shape; see ``PostNormBlock``.

        The enhanced mask decoder, which runs the block on other queries, has no convolution.
        """
        y = super().forward(x, *attention_args)
        context = attention_args[0]
        assert isinstance(context, Context), "the backbone passes one"
        if context.source is not None:
            return y
        neighbours = self.dropout(masked(self.conv(x, context.document_ids), context.real))
        return masked(self.conv_norm(y + self.conv_act(neighbours)), context.real)


def masked(x: Tensor, real: Tensor | None) -> Tensor:
    """Return (batch, tokens, hidden) with zeros for padding; for ``real``, see ``Context``."""
    return x if real is None else x * real
