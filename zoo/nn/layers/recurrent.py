"""Recurrent layers: state carried from batch to batch, and the scan over the tokens of a row."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

Tensors: TypeAlias = tuple[Tensor, ...]
Step: TypeAlias = Callable[[Tensors, Tensors], Tensors]


class RecurrentState:
    """The state of recurrent layers from one batch to the next.

    Row r of a batch continues row r of the batch before. A batch with fewer rows leaves the state
    of the others unchanged; additional rows start with zeros. Initial and final states are kept
    apart, so that recomputing a batch (gradient checkpointing) starts with the same state.

    Args:
        begin: ``ended`` of the batch before, perhaps among other tensors; ``None`` for zeros.

    Attributes:
        ended: the final states by name, (rows, width) each, without gradients.
    """

    def __init__(self, begin: Mapping[str, Tensor] | None = None) -> None:
        self._begin: Mapping[str, Tensor] = begin or {}
        self.ended: dict[str, Tensor] = {}

    def before(self, name: str, zeros: Tensor) -> Tensor:
        """Return the initial state of a batch.

        Args:
            name: name of the state.
            zeros: (rows, width), of the dtype and device of the layer.
        """
        state = self._begin.get(name)
        if state is None:
            return zeros
        return _extend(state.to(zeros)[: zeros.shape[0]], zeros)

    def after(self, name: str, ended: Tensor) -> None:
        """Store the final state of a batch, (rows, width)."""
        new = ended.detach()
        self.ended[name] = _extend(new, self._begin.get(name, new).to(new))


def _extend(rows: Tensor, others: Tensor) -> Tensor:
    """Return ``rows``, followed by the rows of ``others`` beyond their number."""
    return torch.cat([rows, others[rows.shape[0] :]])


def scan(
    step: Step, state: Tensors, inputs: Tensors, *, reverse: bool = False
) -> tuple[Tensor, Tensors]:
    """Apply a recurrent step to the tokens of each row in turn.

    Args:
        step: maps the state before a token and the inputs of the token, (batch, ...) each, to the
            state after it. The first tensor of the state is the output.
        state: the initial state, (batch, ...) each.
        inputs: (batch, tokens, ...) each.
        reverse: start with the last token.

    Returns:
        the outputs, (batch, tokens, ...), and the final state.
    """
    run = _scan_in_graph if torch.compiler.is_exporting() else _loop
    outputs, final = run(step, state, tuple(x.transpose(0, 1) for x in inputs), reverse)
    return outputs.transpose(0, 1), final


def _loop(step: Step, state: Tensors, inputs: Tensors, reverse: bool) -> tuple[Tensor, Tensors]:
    """Return the outputs, (tokens, batch, ...), and the final state."""
    tokens = list(zip(*(x.unbind(0) for x in inputs), strict=True))
    outputs = [state[0]] * len(tokens)
    for t in range(len(tokens))[:: -1 if reverse else 1]:
        state = step(state, tokens[t])
        outputs[t] = state[0]
    return torch.stack(outputs), state


def _scan_in_graph(
    step: Step, state: Tensors, inputs: Tensors, reverse: bool
) -> tuple[Tensor, Tensors]:
    """Return the same by an operator that becomes ONNX's ``Scan``."""
    # An exporter would unroll the loop for the length of its example.
    from torch._higher_order_ops.scan import scan

    def body(state: Tensors, token: Tensors) -> tuple[Tensors, Tensor]:
        state = step(state, token)
        return state, state[0].clone()  # scan refuses outputs that alias each other

    final, outputs = scan(body, state, inputs, reverse=reverse)
    return outputs, final
