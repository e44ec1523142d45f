"""What recurrent layers have in common: they go over tokens in turn, and remember the last."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

Tensors: TypeAlias = tuple[Tensor, ...]
Step: TypeAlias = Callable[[Tensors, Tensors], Tensors]


class RecurrentState:
    """What recurrent layers remember from one batch to the next.

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


def scan(
    step: Step, held: Tensors, given: Tensors, *, reverse: bool = False
) -> tuple[Tensor, Tensors]:
    """Go over the tokens of each row, one after the other.

    Args:
        step: from what is held before a token, and what the token gives, (batch, ...) each, to
            what is held after it. What a layer returns is the first of that.
        held: what the rows begin with, (batch, ...) each.
        given: (batch, tokens, ...) each.
        reverse: whether the last token comes first.

    Returns:
        what a layer returns, (batch, tokens, ...), and what is held at the end.
    """
    over = _in_a_graph if torch.compiler.is_exporting() else _in_turn
    found, ended = over(step, held, tuple(each.transpose(0, 1) for each in given), reverse)
    return found.transpose(0, 1), ended


def _in_turn(step: Step, held: Tensors, tokens: Tensors, reverse: bool) -> tuple[Tensor, Tensors]:
    """Return what is held first after each token, (tokens, batch, ...), and all at the end."""
    every = list(zip(*(each.unbind(0) for each in tokens), strict=True))
    found = [held[0]] * len(every)
    for t in range(len(every))[:: -1 if reverse else 1]:
        held = step(held, every[t])
        found[t] = held[0]
    return torch.stack(found), held


def _in_a_graph(
    step: Step, held: Tensors, tokens: Tensors, reverse: bool
) -> tuple[Tensor, Tensors]:
    """Do the same by an operator, which becomes ONNX's ``Scan``: an exporter would write the loop
    out, token by token, for the length of its example.
    """
    from torch._higher_order_ops.scan import scan

    def body(held: Tensors, token: Tensors) -> tuple[Tensors, Tensor]:
        held = step(held, token)
        return held, held[0].clone()  # no two things returned may be one tensor

    held, found = scan(body, held, tokens, reverse=reverse)
    return found, held
