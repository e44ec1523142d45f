"""LSTMs with projection and clipping, both directions side by side, and what they remember."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.layers.recurrent import RecurrentState, Tensors, scan
from zoo_elmo.config import ElmoConfig

FORGET_BIAS = 1.0  # added to the forget gate's bias when it is used, and not in the file


class ProjectedLstm(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) whose output is projected (Sak et al. 2014,
    arXiv:1402.1128), with limits on the cell and on the projection.

        i, j, f, o = [x, h] kernel + bias
        c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
        h' = clip((sigmoid(o) tanh(c')) projection)

    Args:
        config: the family's configuration.
        name: under which a ``State`` keeps its output and its cell.
        from_the_right: it reads the last word first.
    """

    def __init__(self, config: ElmoConfig, name: str, *, from_the_right: bool) -> None:
        super().__init__()
        self.from_the_right = from_the_right
        self.size, outputs = config.lstm_size, config.projection_size
        self.cell_clip, self.projection_clip = config.cell_clip, config.projection_clip
        self.kept = {f"{name}.output": outputs, f"{name}.cell": self.size}
        self.kernel = nn.Parameter(torch.empty(2 * outputs, 4 * self.size))
        self.bias = nn.Parameter(torch.zeros(4 * self.size))
        projected = outputs < self.size
        self.projection = nn.Parameter(torch.empty(self.size, outputs)) if projected else None

    def forward(self, x: Tensor, mask: Tensor, state: RecurrentState) -> Tensor:
        """Return the output after each word, (batch, tokens, outputs).

        A word that is not real leaves output and cell as they are.

        Args:
            x: (batch, tokens, outputs).
            mask: (batch, tokens), true where there is a word.
            state: what to begin with; it is told what this ends with.
        """
        zeros = (x.new_zeros(x.shape[0], width) for width in self.kept.values())
        begin = tuple(map(state.before, self.kept, zeros))
        forget = F.pad(self.bias.new_full((self.size,), FORGET_BIAS), (2 * self.size, self.size))
        own, recurrent = self.kernel.chunk(2)  # rows for the word, rows for the output before
        # what the words give to the gates, for all of them at once
        given = x @ own + (self.bias + forget)

        def step(held: Tensors, word: Tensors) -> Tensors:
            (output, cell), (gates, real) = held, word
            new = self._step(torch.addmm(gates, output, recurrent), cell)
            return torch.where(real, new[0], output), torch.where(real, new[1], cell)

        words = given, mask.unsqueeze(-1)
        found, ended = scan(step, begin, words, reverse=self.from_the_right)
        for name, each in zip(self.kept, ended, strict=True):
            state.after(name, each)
        return found

    def _step(self, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        i, j, f, o = gates.chunk(4, dim=-1)
        cell = _clip(f.sigmoid() * cell + i.sigmoid() * j.tanh(), self.cell_clip)
        output = o.sigmoid() * cell.tanh()
        if self.projection is not None:
            output = _clip(output @ self.projection, self.projection_clip)
        return output, cell


def _clip(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else x.clamp(-limit, limit)


class BidirectionalLstm(nn.Module):
    """A layer: one LSTM from the left in the first half of a vector, one from the right in the
    second. They do not see each other.

    Args:
        config: the family's configuration.
        number: layers below this one. All but the first add their input to what they return, if
            the configuration says so.
    """

    def __init__(self, config: ElmoConfig, number: int) -> None:
        super().__init__()
        lstm = partial(ProjectedLstm, config)
        self.left_to_right = lstm(f"layers.{number}.left_to_right", from_the_right=False)
        self.right_to_left = lstm(f"layers.{number}.right_to_left", from_the_right=True)
        self.dropout = nn.Dropout(config.dropout)
        self.skip = config.skip_connections and number > 0

    def forward(self, x: Tensor, mask: Tensor, state: RecurrentState) -> Tensor:
        """Return (batch, tokens, hidden), zero where there is no word.

        Args:
            x: (batch, tokens, hidden).
            mask: (batch, tokens), true where there is a word.
            state: what to begin with; it is told what this ends with.
        """
        x = self.dropout(x)
        left, right = x.chunk(2, dim=-1)
        y = torch.cat(
            [self.left_to_right(left, mask, state), self.right_to_left(right, mask, state)], dim=-1
        )
        return (y + x if self.skip else y) * mask.unsqueeze(-1)
