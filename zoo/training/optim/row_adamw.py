"""AdamW for tables of which a batch reads few rows."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from zoo.overrides import override

ROWS_AT_ONCE = 2048  # few calls, with gradients that stay in the cache

_dense_step = inspect.unwrap(torch.optim.AdamW.step)


class RowAdamW(torch.optim.AdamW):
    """``torch.optim.AdamW`` on CPUs that also takes the gradients of some rows of a matrix.

    These are a sparse tensor. The update is the same, bit for bit, as with a gradient that has
    zeros for the other rows: their means decay, and so do their weights.
    """

    # Half of the parameters of a small encoder are token embeddings. A gradient with zeros would be
    # written and read by each of: the backward pass, the norm, clipping and the update. Here,
    # blocks of rows share their zeros, which stay in the cache.
    #
    # ``torch.optim.SparseAdam`` is another optimizer: it leaves the means of the other rows as they
    # are, and has no weight decay.

    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, **settings, fused=True)

    @override
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the loss is computed before"
        row_gradients = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    row_gradients[parameter] = parameter.grad.coalesce()
                    parameter.grad = None
        _dense_step(self)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in row_gradients:
                    self._update_rows(group, parameter, row_gradients[parameter])
                    parameter.grad = row_gradients[parameter]

    def _update_rows(self, group: dict[str, Any], weight: Tensor, gradient: Tensor) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        zeros = torch.zeros_like(weight[:ROWS_AT_ONCE])
        for block, rows, values in _blocks(weight, gradient):
            of_block = zeros[: len(weight[block])]
            of_block.index_copy_(0, rows, values)
            torch._fused_adamw_(
                [weight[block]],
                [of_block],
                [state["exp_avg"][block]],
                [state["exp_avg_sq"][block]],
                [],
                [state["step"]],
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )
            of_block.index_fill_(0, rows, 0)


def _blocks(weight: Tensor, gradient: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield each block of rows, and the rows in it with a gradient and their gradients."""
    rows = gradient.indices()[0]
    values = gradient.values()
    starts = range(0, len(weight), ROWS_AT_ONCE)
    bounds = torch.tensor([*starts, len(weight)])
    places = torch.searchsorted(rows, bounds).tolist()
    for number, start in enumerate(starts):
        inside = slice(places[number], places[number + 1])
        yield slice(start, start + ROWS_AT_ONCE), rows[inside] - start, values[inside]
