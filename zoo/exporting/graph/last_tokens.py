"""The input of a decoder graph that limits the logits to the last tokens."""

import onnx_ir as ir
import torch
from torch import Tensor

from zoo.families.onnx import ALL_LOGITS, NUM_LOGITS, SCORED_TOKENS


def last_tokens(hidden: Tensor, number: Tensor) -> Tensor:
    """Return the last tokens of (batch, tokens, hidden), or all tokens for the number 0."""
    # Generation only needs the logits of a prompt's last token, and they are the largest product of
    # a small model. The input ``num_logits_to_keep`` is called as in transformers and in graphs of
    # the Hub. Here it has a default, all tokens, so that a program need not know it.
    #
    # In a trace, the operator is given as it is in the graph, since torch only traces slices of an
    # input's size. It has the shape of all tokens, which ``set_default`` corrects
    if not torch.compiler.is_exporting():
        return hidden[:, -int(number) :]
    start = -number.reshape(1)
    end = torch.tensor([2**63 - 1])
    axis = torch.tensor([1])
    inputs = (hidden, start, end, axis)
    return torch.onnx.ops.symbolic("Slice", inputs, dtype=hidden.dtype, shape=hidden.shape)


def set_default(model: ir.Model) -> None:
    """Give the input its default, in place; a graph without the input stays as it is."""
    graph = model.graph
    number = next((value for value in graph.inputs if value.name == NUM_LOGITS), None)
    if number is None:
        return
    number.const_value = ir.tensor(ALL_LOGITS, dtype=ir.DataType.INT64, name=NUM_LOGITS)
    graph.register_initializer(number)
    values: set[ir.Value] = set()  # that depend on the input: the slice and what follows it
    waiting = [number]
    while waiting:
        outputs = {output for node in waiting.pop().consumers() for output in node.outputs}
        waiting += outputs - values
        values |= outputs
    for value in values:
        shape = value.shape if value.is_graph_output() else None  # outputs of a trace have shapes
        value.shape = shape and ir.Shape([shape[0], SCORED_TOKENS, *shape[2:]])
