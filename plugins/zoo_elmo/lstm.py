"""LSTMs with projection and clipping, and layers of both directions."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.layers.dropout import Dropout
from zoo.nn.layers.recurrent import RecurrentState, Tensors, scan
from zoo_elmo.config import ElmoConfig

FORGET_BIAS = 1.0  # added to the forget gate's stored bias, as in the released code


class ProjectedLstm(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) with projected output (Sak et al. 2014,
    arXiv:1402.1128) and clipping of cell and projection.

        i, j, f, o = [x, h] kernel + bias
        c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
        h' = clip((sigmoid(o) tanh(c')) projection)
    """

    def __init__(self, config: ElmoConfig, name: str, *, reverse: bool) -> None:
        super().__init__()
        self.reverse = reverse
        self.size = config.lstm_size
        outputs = config.projection_size
        self.cell_clip = config.cell_clip
        self.projection_clip = config.projection_clip
        self.state_widths = {f"{name}.output": outputs, f"{name}.cell": self.size}
        self.kernel = nn.Parameter(torch.empty(2 * outputs, 4 * self.size))
        self.bias = nn.Parameter(torch.zeros(4 * self.size))
        projected = outputs < self.size
        self.projection = nn.Parameter(torch.empty(self.size, outputs)) if projected else None

    def forward(self, x: Tensor, mask: Tensor, state: RecurrentState) -> Tensor:
        """Return the output after each word, (batch, tokens, outputs).

        Padding leaves output and cell unchanged.

        Args:
            x: (batch, tokens, outputs).
            mask: (batch, tokens), bool: true for words.
        """
        zeros = (x.new_zeros(x.shape[0], width) for width in self.state_widths.values())
        begin = tuple(map(state.before, self.state_widths, zeros))
        forget = F.pad(self.bias.new_full((self.size,), FORGET_BIAS), (2 * self.size, self.size))
        input_kernel, recurrent_kernel = self.kernel.chunk(2)
        gates = x @ input_kernel + (self.bias + forget)  # of all words in one product

        def step(state: Tensors, word: Tensors) -> Tensors:
            output, cell = state
            word_gates, real = word
            sums = torch.addmm(word_gates, output, recurrent_kernel)
            i, j, f, o = sums.chunk(4, dim=-1)
            new_cell = _clip(f.sigmoid() * cell + i.sigmoid() * j.tanh(), self.cell_clip)
            new = o.sigmoid() * new_cell.tanh()
            if self.projection is not None:
                new = _clip(new @ self.projection, self.projection_clip)
            return torch.where(real, new, output), torch.where(real, new_cell, cell)

        words = gates, mask.unsqueeze(-1)
        outputs, ended = scan(step, begin, words, reverse=self.reverse)
        for name, tensor in zip(self.state_widths, ended, strict=True):
            state.after(name, tensor)
        return outputs


def _clip(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else x.clamp(-limit, limit)


class BidirectionalLstm(nn.Module):
    """A layer of two independent LSTMs, of the forward and of the backward language model.

    The first half of a hidden state is the forward LSTM's, the second half the backward one's.
    """

    def __init__(self, config: ElmoConfig, index: int) -> None:
        super().__init__()
        lstm = partial(ProjectedLstm, config)
        self.left_to_right = lstm(f"layers.{index}.left_to_right", reverse=False)
        self.right_to_left = lstm(f"layers.{index}.right_to_left", reverse=True)
        self.dropout = Dropout(config.dropout)
        self.skip = config.skip_connections and index > 0

    def forward(self, x: Tensor, mask: Tensor, state: RecurrentState) -> Tensor:
        """Return (batch, tokens, hidden), zero for padding.

        Args:
            x: (batch, tokens, hidden).
            mask: (batch, tokens), bool: true for words.
        """
        x = self.dropout(x)
        left, right = x.chunk(2, dim=-1)
        y = torch.cat(
            [self.left_to_right(left, mask, state), self.right_to_left(right, mask, state)], dim=-1
        )
        return (y + x if self.skip else y) * mask.unsqueeze(-1)
