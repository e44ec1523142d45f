"""Embeddings whose gradients, on CPUs, are those of the rows that were read, or reuse memory."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LARGE = 1 << 25  # bytes, above which glibc returns memory to the system when it is freed
LEAST_OF_ROWS = 1 << 22  # bytes of a table, below which all its rows are quickly computed


class Embedding(nn.Embedding):
    """``nn.Embedding`` that uses the memory of its last gradient for the next one.

    If ``sparse`` is set, the gradient is that of the rows that were read, a sparse tensor, unless
    the table is also used otherwise, such as for logits.
    """

    # The gradient of a large table is a tensor of zeros but for the rows of a batch. On CPUs, new
    # memory of that size comes from the system, which clears it page by page when it is touched.

    # a former gradient, which is not read; ``None`` for none
    spare_gradient: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows of ids: (...) to (..., embedding_dim)."""
        weight: Tensor = self.weight
        trained = torch.is_grad_enabled() and weight.requires_grad and weight.device.type == "cpu"
        if not trained or self.sparse or weight.nbytes < LARGE or torch.compiler.is_compiling():
            return super().forward(input)
        return _Lookup.apply(weight, input, self)  # type: ignore[no-any-return, no-untyped-call]

    def take_zeros(self) -> Tensor:
        """Return zeros of the shape of the table, which nothing else refers to."""
        spare = self.spare_gradient
        self.spare_gradient = None
        weight: Tensor = self.weight
        if spare is None or (spare.shape, spare.dtype) != (weight.shape, weight.dtype):
            return torch.zeros_like(weight)
        return spare.zero_()

    def recycle_gradient(self) -> None:
        """Set the gradient to ``None``, and keep its memory for the next one if it is large."""
        gradient = self.weight.grad
        if gradient is not None and type(gradient) is Tensor and gradient.is_contiguous():
            is_large = gradient.device.type == "cpu" and gradient.nbytes >= LARGE
            self.spare_gradient = gradient if is_large else None
        self.weight.grad = None


def use_row_gradients(model: nn.Module) -> None:
    """Make the gradients of large embeddings sparse; see ``Embedding``."""
    for module in model.modules():
        if isinstance(module, Embedding) and module.weight.nbytes >= LEAST_OF_ROWS:
            module.sparse = True


def sum_row_gradients(model: nn.Module) -> None:
    """Sum what a row has from several passes, so that gradients hold each row once."""
    for module in model.modules():
        if not isinstance(module, Embedding):
            continue
        gradient = module.weight.grad
        if gradient is not None and gradient.is_sparse:
            module.weight.grad = gradient.coalesce()


def recycle_gradients(model: nn.Module) -> None:
    """Set the gradients of large embeddings to ``None``, see ``Embedding.recycle_gradient``."""
    for module in model.modules():
        if isinstance(module, Embedding):
            module.recycle_gradient()


class _Lookup(torch.autograd.Function):
    """The rows of a table, whose gradient is added into memory of the module."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, module: Embedding) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.module = module
        return nn.functional.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (ids,) = ctx.saved_tensors
        rows = gradients[0].flatten(0, -2)
        gradient = ctx.module.take_zeros().index_add_(0, ids.flatten(), rows)
        if ctx.module.padding_idx is not None:
            gradient[ctx.module.padding_idx] = 0
        return gradient, None, None
