"""Low-rank updates of all matrices for several tasks, one of which each token selects.

Sturua et al. 2024, arXiv:2409.10173, section 4.2; ``modeling_lora.py`` of the released code. For
the task t, a matrix W becomes W + alpha / rank * B[t] A[t], and a table E becomes
E + alpha / rank * A[t] B[t].
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.heads import Pooler
from zoo.nn.kernels.embedding import Embedding
from zoo.nn.transformer import Embeddings
from zoo.overrides import override


class TaskSelection:
    """The task of each token of the batch that a model computes.

    Args:
        tasks: number of tasks.
        rank: rank of the updates.
        alpha: the updates are multiplied by ``alpha / rank``.
    """

    def __init__(self, *, tasks: int, rank: int, alpha: float) -> None:
        self.tasks = tasks
        self.rank = rank
        self.scaling = alpha / rank
        # (batch, tokens, tasks), true for the task of a token; ``None`` for no updates.
        self.one_hot: Tensor | None = None

    @contextmanager
    def select(self, types: Tensor | None) -> Iterator[None]:
        """Select the tasks of tokens within a block.

        Args:
            types: (batch, tokens), int64: 0 for no task, else the number of the task from 1;
                ``None`` for no task of any token.
        """
        outer_selection = self.one_hot
        self.one_hot = None
        if types is not None:
            numbers = torch.arange(1, self.tasks + 1, device=types.device)
            self.one_hot = types[..., None] == numbers
        try:
            yield
        finally:
            self.one_hot = outer_selection

    def masked(self, projections: Tensor, one_hot: Tensor) -> Tensor:
        """Return low-rank projections without those of other tasks.

        Args:
            projections: (..., tasks, rank).
            one_hot: (..., tasks).

        Returns:
            (..., tasks * rank).
        """
        return (projections * one_hot[..., None].to(projections.dtype)).flatten(-2)


class TaskLinear(nn.Linear):
    """A linear map with an update for each task."""

    lora_A: nn.Parameter
    lora_B: nn.Parameter
    selection: TaskSelection

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool, selection: TaskSelection
    ) -> None:
        super().__init__(in_features, out_features, bias=bias)
        _add_factors(self, selection, (selection.rank, in_features), (out_features, selection.rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, in) to (batch, tokens, out)."""
        one_hot = self.selection.one_hot
        return super().forward(x) + _linear_update(self, x, one_hot)


class TaskPooler(Pooler):
    """A pooler whose linear map has an update for each task; that of the first token counts."""

    lora_A: nn.Parameter
    lora_B: nn.Parameter
    selection: TaskSelection

    def __init__(self, hidden_size: int, *, selection: TaskSelection) -> None:
        super().__init__(hidden_size)
        rank = selection.rank
        _add_factors(self, selection, (rank, hidden_size), (hidden_size, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    @override
    def forward(self, hidden: Tensor) -> Tensor:
        one_hot = self.selection.one_hot
        first_tokens = hidden[:, 0]
        selected = None if one_hot is None else one_hot[:, 0]
        mapped = F.linear(first_tokens, self.weight, self.bias)
        return self.act(mapped + _linear_update(self, first_tokens, selected))


class TaskTable(Embedding):
    """A table of embeddings with an update for each task."""

    lora_A: nn.Parameter
    lora_B: nn.Parameter
    selection: TaskSelection

    def __init__(self, rows: int, width: int, *, selection: TaskSelection) -> None:
        super().__init__(rows, width)
        _add_factors(self, selection, (rows, selection.rank), (selection.rank, width))
        nn.init.zeros_(self.lora_A)
        nn.init.normal_(self.lora_B)

    @override
    def forward(self, input: Tensor) -> Tensor:
        """Return the rows of ids: (batch, tokens) to (batch, tokens, width)."""
        vectors = super().forward(input)
        selection = self.selection
        if selection.one_hot is None:
            return vectors
        factors = self.lora_A.transpose(0, 1)[input]  # (batch, tokens, tasks, rank)
        b = self.lora_B.flatten(0, 1)  # (tasks * rank, width)
        change: Tensor = selection.masked(factors, selection.one_hot) @ b
        return vectors + change * selection.scaling


class TaskEmbeddings(Embeddings):
    """Embeddings of tokens of one segment, with updates for each task.

    Args:
        selection: the tasks of tokens.
        **options: see ``Embeddings``.
    """

    def __init__(self, *, selection: TaskSelection, **options: Any) -> None:
        super().__init__(**options)
        self.selection = selection
        width = options["hidden_size"]
        self.tokens = TaskTable(options["vocab_size"], width, selection=selection)
        self.types = TaskTable(1, width, selection=selection)

    @override
    def embed_segments(self, token_type_ids: Tensor | None) -> Tensor | None:
        one_hot = self.selection.one_hot
        if one_hot is None:
            return super().embed_segments(None)
        assert self.types is not None, "there is one segment"
        segments = torch.zeros(one_hot.shape[:2], dtype=torch.int64, device=one_hot.device)
        return self.types(segments)  # type: ignore[no-any-return]


def give_updates(module: nn.Module, selection: TaskSelection) -> None:
    """Replace the linear maps within a module by maps with updates."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            sizes = (child.in_features, child.out_features)
            bias = child.bias is not None
            setattr(module, name, TaskLinear(*sizes, bias=bias, selection=selection))
        else:
            give_updates(child, selection)


def _add_factors(
    module: Any, selection: TaskSelection, a_shape: tuple[int, int], b_shape: tuple[int, int]
) -> None:
    """Give a module the factors A and B of all tasks, with the values of no update."""
    module.selection = selection
    module.lora_A = nn.Parameter(torch.empty(selection.tasks, *a_shape))
    module.lora_B = nn.Parameter(torch.zeros(selection.tasks, *b_shape))


def _linear_update(module: Any, x: Tensor, one_hot: Tensor | None) -> Tensor | float:
    """Return what the task of each token adds to a linear map: (..., in) to (..., out)."""
    if one_hot is None:
        return 0.0
    selection: TaskSelection = module.selection
    projections = F.linear(x, module.lora_A.flatten(0, 1)).unflatten(  # type: ignore[no-untyped-call]
        -1, (selection.tasks, selection.rank)
    )
    b = module.lora_B.transpose(0, 1).flatten(1)  # (out, tasks * rank)
    return F.linear(selection.masked(projections, one_hot), b) * selection.scaling
