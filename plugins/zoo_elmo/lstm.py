"""LSTMs with projection and clipping, both directions side by side, and what they remember."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo_elmo.config import ElmoConfig

Pair: TypeAlias = tuple[Tensor, Tensor]
Step: TypeAlias = Callable[[Pair, Pair], Pair]  # (output, cell), (gates, real) -> (output, cell)

FORGET_BIAS = 1.0  # added to the forget gate's bias when it is used, and not in the file


class State:
    """What the LSTMs remember from one batch to the next, as the released code does.

    Row r of a batch goes on where row r of the batch before ended. A batch with fewer rows leaves
    the memory of the others as it is; rows that come anew begin with zeros. What a batch begins
    with and what it ends with are apart, so that computing it again (activation checkpointing)
    begins with the same.

    Args:
        begin: what ``ended`` was after the batch before, perhaps among other tensors; by default
            every row begins with zeros.

    Attributes:
        ended: what the batch ended with, by name, (rows, width) each; gradients stop here.
    """

    def __init__(self, begin: Mapping[str, Tensor] | None = None) -> None:
        self._begin: Mapping[str, Tensor] = begin or {}
        self.ended: dict[str, Tensor] = {}

    def before(self, name: str, zeros: Tensor) -> Tensor:
        """Return what each row of a batch begins with.

        Args:
            name: of what is remembered.
            zeros: (rows, width), of the dtype and device to compute in.
        """
        held = self._begin.get(name)
        return zeros if held is None else _and_more(held.to(zeros)[: zeros.shape[0]], zeros)

    def after(self, name: str, ended: Tensor) -> None:
        """Keep what the rows of a batch ended with, (rows, width)."""
        new = ended.detach()
        self.ended[name] = _and_more(new, self._begin.get(name, new).to(new))


def _and_more(rows: Tensor, others: Tensor) -> Tensor:
    """Return some rows and, of the others, those that follow on as many."""
    return torch.cat([rows, others[rows.shape[0] :]])


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

    def forward(self, x: Tensor, mask: Tensor, state: State) -> Tensor:
        """Return the output after each word, (batch, tokens, outputs).

        A word that is not real leaves output and cell as they are.

        Args:
            x: (batch, tokens, outputs).
            mask: (batch, tokens), true where there is a word.
            state: what to begin with; it is told what this ends with.
        """
        zeros = (x.new_zeros(x.shape[0], width) for width in self.kept.values())
        output, cell = map(state.before, self.kept, zeros)
        forget = F.pad(self.bias.new_full((self.size,), FORGET_BIAS), (2 * self.size, self.size))
        own, recurrent = self.kernel.chunk(2)  # rows for the word, rows for the output before
        # what the words give to the gates, for all of them at once
        given = (x @ own + (self.bias + forget)).transpose(0, 1)

        def step(held: Pair, word: Pair) -> Pair:
            (output, cell), (gates, real) = held, word
            new = self._step(torch.addmm(gates, output, recurrent), cell)
            return torch.where(real, new[0], output), torch.where(real, new[1], cell)

        walk = _walk_in_graph if torch.compiler.is_exporting() else _walk
        words = given, mask.t().unsqueeze(-1)
        found, ended = walk(step, (output, cell), words, self.from_the_right)
        for name, each in zip(self.kept, ended, strict=True):
            state.after(name, each)
        return found.transpose(0, 1)

    def _step(self, gates: Tensor, cell: Tensor) -> Pair:
        i, j, f, o = gates.chunk(4, dim=-1)
        cell = _clip(f.sigmoid() * cell + i.sigmoid() * j.tanh(), self.cell_clip)
        output = o.sigmoid() * cell.tanh()
        if self.projection is not None:
            output = _clip(output @ self.projection, self.projection_clip)
        return output, cell


def _walk(step: Step, held: Pair, words: Pair, from_the_right: bool) -> tuple[Tensor, Pair]:
    """Return the output after each word, (tokens, batch, outputs), and what is held at the end."""
    every = list(zip(*(each.unbind(0) for each in words), strict=True))
    found = [held[0]] * len(every)
    for t in range(len(every))[:: -1 if from_the_right else 1]:
        held = step(held, every[t])
        found[t] = held[0]
    return torch.stack(found), held


def _walk_in_graph(
    step: Step, held: Pair, words: Pair, from_the_right: bool
) -> tuple[Tensor, Pair]:
    """Do the same by an operator, which becomes ONNX's ``Scan``: an exporter would write the loop
    out, word by word, for the length of its example.
    """
    from torch._higher_order_ops.scan import scan

    def body(held: Pair, word: Pair) -> tuple[Pair, Tensor]:
        held = step(held, word)
        return held, held[0].clone()  # no two things returned may be one tensor

    held, found = scan(body, held, words, reverse=from_the_right)
    return found, held


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

    def forward(self, x: Tensor, mask: Tensor, state: State) -> Tensor:
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
