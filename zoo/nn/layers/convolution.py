"""Convolutions over the tokens of a text."""

from torch import Tensor, nn
from torch.nn import functional as F


class TokenConvolution(nn.Conv1d):
    """Mixes each token with its neighbours on both sides; beyond the ends are zeros.

    Args:
        hidden_size: width of the input and the output.
        kernel_size: how many tokens are mixed, an odd number.
        groups: of channels, which are mixed apart.
    """

    def __init__(self, hidden_size: int, kernel_size: int, groups: int = 1) -> None:
        half = kernel_size // 2
        super().__init__(hidden_size, hidden_size, kernel_size, padding=half, groups=groups)

    def forward(self, x: Tensor, texts: Tensor | None = None) -> Tensor:
        """Convolve; of a row's texts, each as if it stood alone.

        Args:
            x: (batch, tokens, hidden).
            texts: (batch, tokens), which of a row's texts a token is of; ``None`` where each row
                is one text.

        Returns:
            (batch, tokens, hidden).
        """
        if texts is None:
            return super().forward(x.transpose(1, 2)).transpose(1, 2)
        weights, found = self.weight.unbind(-1), x.new_zeros(())
        for away, weight in enumerate(weights, -(len(weights) // 2)):
            near, of = F.pad(x, (0, 0, -away, away)), F.pad(texts, (-away, away))
            seen = (near * (of == texts)[..., None]).transpose(1, 2)
            found = found + F.conv1d(seen, weight[..., None], groups=self.groups)
        return found.transpose(1, 2) + self.get_parameter("bias")
