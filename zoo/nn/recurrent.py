"""What recurrent layers have in common: they go over tokens in turn, and remember the last."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

Held: TypeAlias = tuple[Tensor, ...]  # what a layer knows of the tokens that it has read
Step: TypeAlias = Callable[[Held, Tensor], Held]
Token: TypeAlias = tuple[Tensor, Tensor]  # what it gives, and whether it is real


class State:
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


def walk(
    step: Step, held: Held, given: Tensor, mask: Tensor, *, reverse: bool = False
) -> tuple[Tensor, Held]:
    """Go over the tokens of each row, one after the other.

    Args:
        step: from what is held before a token, and what the token gives, (batch, width), to what
            is held after it. What a layer returns is the first of that.
        held: what the rows begin with, (batch, ...) each.
        given: (batch, tokens, width).
        mask: (batch, tokens), true where there is a token; others leave what is held as it is.
        reverse: whether the last token comes first.

    Returns:
        what a layer returns, (batch, tokens, ...), and what is held at the end.
    """

    def keep_or_step(held: Held, token: Token) -> Held:
        given, real = token
        return tuple(torch.where(real, *pair) for pair in zip(step(held, given), held, strict=True))

    over = _in_a_graph if torch.compiler.is_exporting() else _in_turn
    tokens = given.transpose(0, 1), mask.t().unsqueeze(-1)
    found, ended = over(keep_or_step, held, tokens, reverse)
    return found.transpose(0, 1), ended


def _in_turn(
    step: Callable[[Held, Token], Held], held: Held, tokens: Token, reverse: bool
) -> tuple[Tensor, Held]:
    """Return what is held first after each token, (tokens, batch, ...), and all at the end."""
    every = list(zip(*(each.unbind(0) for each in tokens), strict=True))
    found = [held[0]] * len(every)
    for t in range(len(every))[:: -1 if reverse else 1]:
        held = step(held, every[t])
        found[t] = held[0]
    return torch.stack(found), held


def _in_a_graph(
    step: Callable[[Held, Token], Held], held: Held, tokens: Token, reverse: bool
) -> tuple[Tensor, Held]:
    """Do the same by an operator, which becomes ONNX's ``Scan``: an exporter would write the loop
    out, token by token, for the length of its example.
    """
    from torch._higher_order_ops.scan import scan

    def body(held: Held, token: Token) -> tuple[Held, Tensor]:
        held = step(held, token)
        return held, held[0].clone()  # no two things returned may be one tensor

    held, found = scan(body, held, tokens, reverse=reverse)
    return found, held
