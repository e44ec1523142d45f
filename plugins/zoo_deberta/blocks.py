"""What DeBERTa has of its own around attention: padding of zeros, and a convolution."""

from typing import Any

from torch import Tensor, nn

from zoo.nn.blocks import PostNormBlock
from zoo.nn.layers import embeddings
from zoo.nn.layers.activations import activation
from zoo.nn.layers.convolution import TokenConvolution
from zoo_deberta.attention import Context
from zoo_deberta.config import DebertaConfig


class Embeddings(embeddings.Embeddings):
    """The usual ones, and zeros for padding."""

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        real: Tensor | None = None,
    ) -> Tensor:
        """See ``zoo.nn.layers.embeddings``; ``real`` is as in ``Context``."""
        return masked(super().forward(input_ids, token_type_ids, position_ids), real)


class ConvolutionBlock(PostNormBlock):
    """The first block of large models, which looks at each token's neighbours besides.

    Args:
        config: the shape.
        attention: see ``PostNormBlock``.
        **usual: see ``PostNormBlock``.
    """

    def __init__(self, config: DebertaConfig, attention: nn.Module, **usual: Any) -> None:
        super().__init__(attention, **usual)
        width = config.hidden_size
        self.conv = TokenConvolution(width, config.conv_kernel_size, config.conv_groups)
        self.conv_act = activation(config.conv_activation)
        self.conv_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, x: Tensor, *given: Any) -> Tensor:
        """See ``PostNormBlock``. What decodes, and looks at other tokens, has no convolution."""
        y, context = super().forward(x, *given), given[0]
        assert isinstance(context, Context), "the trunk gives it"
        if context.source is not None:
            return y
        near = self.dropout(masked(self.conv(x, context.document_ids), context.real))
        return masked(self.conv_norm(y + self.conv_act(near)), context.real)


def masked(x: Tensor, real: Tensor | None) -> Tensor:
    """Put zeros, in (batch, tokens, hidden), where nothing is ``real``; see ``Context``."""
    return x if real is None else x * real
