"""Convolution over the tokens of a row."""

from torch import Tensor, nn
from torch.nn import functional as F


class TokenConvolution(nn.Conv1d):
    """A convolution over neighbouring tokens, with zero padding at both ends.

    Args:
        hidden_size: width of input and output.
        kernel_size: number of tokens in the window, odd.
        groups: number of groups of channels.
    """

    def __init__(self, hidden_size: int, kernel_size: int, groups: int = 1) -> None:
        half = kernel_size // 2
        super().__init__(hidden_size, hidden_size, kernel_size, padding=half, groups=groups)

    def forward(self, x: Tensor, document_ids: Tensor | None = None) -> Tensor:
        """Convolve over the tokens of each document.

        Args:
            x: (batch, tokens, hidden).
            document_ids: (batch, tokens), int64: the document of each token of a packed row;
                ``None`` where each row is one document.

        Returns:
            (batch, tokens, hidden).
        """
        if document_ids is None:
            return super().forward(x.transpose(1, 2)).transpose(1, 2)
        # One product for each offset, with neighbours of other documents set to zero: a document
        # of a packed row gets the result that it has in a row of its own.
        weights = self.weight.unbind(-1)
        total = x.new_zeros(())
        for offset, weight in enumerate(weights, -(len(weights) // 2)):
            neighbours = F.pad(x, (0, 0, -offset, offset))
            same_document = F.pad(document_ids, (-offset, offset)) == document_ids
            inputs = (neighbours * same_document[..., None]).transpose(1, 2)
            total = total + F.conv1d(inputs, weight[..., None], groups=self.groups)
        return total.transpose(1, 2) + self.get_parameter("bias")
