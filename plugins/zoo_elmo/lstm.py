"""LSTMs with projection and clipping, both directions side by side, and what they remember."""

from collections.abc import Callable, Mapping
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
    the memory of the others as it is; rows that come anew begin with zeros. Give one of these to
    each call that belongs to one stream, and none to start afresh.
    """

    def __init__(self) -> None:
        self._held: dict[nn.Module, Pair] = {}

    def reset(self) -> None:
        """Forget everything."""
        self._held.clear()

    def before(self, lstm: "ProjectedLstm", like: Tensor) -> Pair:
        """Return the output and the cell that each row of a batch begins with.

        Args:
            lstm: the LSTM that asks.
            like: (rows, ...), of the dtype and device to compute in.
        """
        rows = like.shape[0]
        held = self._held.get(lstm)
        if held is None:
            return lstm.zeros(like)
        output, cell = (_with_rows(each.to(like), rows) for each in held)
        return output, cell

    def after(self, lstm: "ProjectedLstm", ended: Pair) -> None:
        """Keep what the rows of a batch ended with; gradients stop here."""
        held = self._held.get(lstm)
        new = tuple(each.detach() for each in ended)
        if held is not None:
            new = tuple(
                torch.cat([now, old[now.shape[0] :].to(now)])
                for now, old in zip(new, held, strict=True)
            )
        self._held[lstm] = (new[0], new[1])


class Handover(State):
    """What one batch begins with and what it ends with, apart, so that computing the batch again
    (activation checkpointing) begins with the same.

    Args:
        model: whose LSTMs.
        tensors: what ``ended`` gave of the batch before, perhaps among others.
    """

    def __init__(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._names: dict[nn.Module, tuple[str, str]] = {
            module: (f"{name}.output", f"{name}.cell")
            for name, module in model.named_modules()
            if isinstance(module, ProjectedLstm)
        }
        self.ended: dict[str, Tensor] = {}
        for lstm, (output, cell) in self._names.items():
            if output in tensors:
                self._held[lstm] = tensors[output], tensors[cell]

    def after(self, lstm: "ProjectedLstm", ended: Pair) -> None:
        """Keep what the rows of a batch ended with, by name; gradients stop here."""
        held = (each.detach() for each in ended)
        self.ended.update(zip(self._names[lstm], held, strict=True))


def _with_rows(held: Tensor, rows: int) -> Tensor:
    missing = max(rows - held.shape[0], 0)
    return F.pad(held, (0, 0, 0, missing))[:rows]


class ProjectedLstm(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) whose output is projected (Sak et al. 2014,
    arXiv:1402.1128), with limits on the cell and on the projection.

        i, j, f, o = [x, h] kernel + bias
        c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
        h' = clip((sigmoid(o) tanh(c')) projection)

    Args:
        config: the family's configuration.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.size, self.outputs = config.lstm_size, config.projection_size
        self.cell_clip, self.projection_clip = config.cell_clip, config.projection_clip
        self.kernel = nn.Parameter(torch.empty(2 * self.outputs, 4 * self.size))
        self.bias = nn.Parameter(torch.zeros(4 * self.size))
        shape = self.size, self.outputs
        projected = self.outputs < self.size
        self.projection = nn.Parameter(torch.empty(shape)) if projected else None

    def zeros(self, like: Tensor) -> Pair:
        """Return the output and the cell that a text begins with."""
        rows = like.shape[0]
        return like.new_zeros(rows, self.outputs), like.new_zeros(rows, self.size)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        begin: Pair,
        *,
        from_the_right: bool = False,
    ) -> tuple[Tensor, Pair]:
        """Read a batch word by word. A word that is not real leaves output and cell as they are.

        Args:
            x: (batch, tokens, outputs).
            mask: (batch, tokens), true where there is a word.
            begin: output and cell to begin with, (batch, outputs) and (batch, size).
            from_the_right: read the last word first.

        Returns:
            the output after each word, (batch, tokens, outputs), and output and cell at the end.
        """
        forget = F.pad(self.bias.new_full((self.size,), FORGET_BIAS), (2 * self.size, self.size))
        own, recurrent = self.kernel.chunk(2)  # rows for the word, rows for the output before
        # what the words give to the gates, for all of them at once
        given = (x @ own + (self.bias + forget)).transpose(0, 1)

        def step(held: Pair, word: Pair) -> Pair:
            (output, cell), (gates, real) = held, word
            new_output, new_cell = self._step(torch.addmm(gates, output, recurrent), cell)
            return torch.where(real, new_output, output), torch.where(real, new_cell, cell)

        walk = _walk_in_graph if torch.compiler.is_exporting() else _walk
        found, end = walk(step, begin, (given, mask.t().unsqueeze(-1)), from_the_right)
        return found.transpose(0, 1), end

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
    order = range(len(every))
    for t in reversed(order) if from_the_right else order:
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
        skip: add the input to what is returned.
    """

    def __init__(self, config: ElmoConfig, *, skip: bool) -> None:
        super().__init__()
        self.left_to_right = ProjectedLstm(config)
        self.right_to_left = ProjectedLstm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.skip = skip

    def forward(self, x: Tensor, mask: Tensor, state: State | None = None) -> Tensor:
        """Return (batch, tokens, hidden), zero where there is no word.

        Args:
            x: (batch, tokens, hidden).
            mask: (batch, tokens), true where there is a word.
            state: what to begin with; it is brought up to date.
        """
        x = self.dropout(x)
        halves = []
        for lstm, half in zip(self.children(), x.chunk(2, dim=-1), strict=False):
            assert isinstance(lstm, ProjectedLstm), "the first two children"
            begin = lstm.zeros(x) if state is None else state.before(lstm, x)
            found, end = lstm(half, mask, begin, from_the_right=lstm is self.right_to_left)
            if state is not None:
                state.after(lstm, end)
            halves.append(found)
        y = torch.cat(halves, dim=-1)
        return (y + x if self.skip else y) * mask.unsqueeze(-1)
