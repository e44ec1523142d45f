"""What DeBERTa has of its own around attention: padding of zeros, and a convolution."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn import embeddings
from zoo.nn.activations import activation
from zoo.nn.blocks import PostNormBlock
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
        """See ``zoo.nn.embeddings``; ``real`` is as in ``Context``."""
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
        width, kernel = config.hidden_size, config.conv_kernel_size
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=config.conv_groups)
        self.conv_act = activation(config.conv_activation)
        self.conv_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, x: Tensor, *given: Any) -> Tensor:
        """See ``PostNormBlock``. What decodes, and looks at other tokens, has no convolution."""
        y, context = super().forward(x, *given), given[0]
        assert isinstance(context, Context), "the trunk gives it"
        if context.source is not None:
            return y
        near = self.dropout(masked(self._neighbours(x, context.texts), context.real))
        return masked(self.conv_norm(y + self.conv_act(near)), context.real)

    def _neighbours(self, x: Tensor, texts: Tensor | None) -> Tensor:
        """Convolve (batch, tokens, hidden); of a row's texts, each as if it stood alone."""
        if texts is None:
            return self.conv(x.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]
        weights, found = self.conv.weight.unbind(-1), x.new_zeros(())
        for away, weight in enumerate(weights, -(len(weights) // 2)):
            near, of = F.pad(x, (0, 0, -away, away)), F.pad(texts, (-away, away))
            seen = (near * (of == texts)[..., None]).transpose(1, 2)
            found = found + F.conv1d(seen, weight[..., None], groups=self.conv.groups)
        return found.transpose(1, 2) + self.conv.get_parameter("bias")


def masked(x: Tensor, real: Tensor | None) -> Tensor:
    """Put zeros, in (batch, tokens, hidden), where nothing is ``real``; see ``Context``."""
    return x if real is None else x * real
