"""The likely cause of a difference from the reference.

Two things are tried. The tokens that an output reads are compared with those that the reference's
output reads, which finds another pooled token and a wrong mask. Then common mistakes are made in
the reference; if it agrees with the model then, the mistake is the likely cause.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.conformance.causes import Cause, ComparedModels, Inputs, Outputs, common_causes
from zoo.conformance.comparison import InputBatch, exceeding, output_differences
from zoo.conformance.module_trace import ModuleDifference
from zoo.families.base import Family

AGREES = 1e-7  # largest relative difference in float64 of outputs that agree
# inputs whose tokens are exchanged, and their axis in the outputs
TOKEN_INPUTS = (("input_ids", "tokens"), ("decoder_input_ids", "decoder_tokens"))


def explain(
    family: Family,
    config: Any,
    head: str,
    module: ModuleDifference | None = None,
    lengths: Sequence[int] | None = None,
) -> str:
    """Return the likely cause of a difference as the end of a message; empty if it is not known.

    Args:
        family: the family.
        config: its configuration.
        head: name of the head.
        module: the first module that differs; ``None`` if that is not known.
        lengths: number of tokens of the rows; see ``draw_batches``.
    """
    if module is not None and module.explanation.is_cause:
        return ""  # the message says it already
    try:
        models = ComparedModels(family, config, head, lengths)
        cause = _likely_cause(models, module)
    except Exception:
        # A search that fails must not hide the difference, which is reported without a cause.
        return ""
    return f"; likely cause: {cause}" if cause else ""


def _likely_cause(models: ComparedModels, module: ModuleDifference | None) -> str:
    """Return the likely cause; empty if no known mistake explains the difference."""
    if module is None or module.is_in_input:
        text = _different_tokens(models)
        if text:
            return text
    with torch.no_grad():
        outputs = [models.run_model(batch.inputs)[0] for batch in models.batches]
        for cause in common_causes(models, module):
            if _agrees(models, outputs, cause):
                return cause.text
    return ""


def _agrees(models: ComparedModels, outputs: Sequence[Outputs], cause: Cause) -> bool:
    """Return whether the reference with a mistake gives outputs of the model."""
    try:
        reference = cause.build()
        if cause.change_inputs is not None:
            _change_arguments(reference, cause.change_inputs)
        for batch, batch_outputs in zip(models.batches, outputs, strict=True):
            expected, _ = models.run_reference(reference, batch.inputs)
            differences = output_differences(batch_outputs, expected, models.axes, batch)
            if exceeding(differences, AGREES):
                return False
    except Exception:
        return False  # the reference does not compute anything with this mistake
    return True


def _change_arguments(model: nn.Module, change: Callable[[Inputs], Inputs]) -> None:
    """Let a function change the arguments of the forward pass of a model."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: Inputs) -> tuple[Any, Inputs]:
        return args, change(kwargs)

    model.register_forward_pre_hook(hook, with_kwargs=True)


def _different_tokens(models: ComparedModels) -> str:
    """Say which tokens an output reads, if the reference's reads others."""
    try:
        return _different_pooling(models) or _different_mask(models)
    except Exception:
        return ""  # the model cannot be differentiated, or run with other tokens


def _different_pooling(models: ComparedModels) -> str:
    """Say which tokens of the last layer an output of a whole text reads, if others."""
    batch = models.batches[0]
    pooled_outputs = [name for name, axes in models.axes.items() if "tokens" not in axes]
    if not pooled_outputs or "tokens" not in batch.real:
        return ""
    with torch.enable_grad():
        outputs, hidden = models.run_model(batch.inputs)
        reference_outputs, reference_hidden = models.run_reference(models.reference, batch.inputs)
    if len(hidden) != len(reference_hidden):
        return ""
    for name in pooled_outputs:
        read = _tokens_read(outputs[name][0], hidden[-1])
        reference_read = _tokens_read(reference_outputs[name][0], reference_hidden[-1])
        if read and reference_read and read != reference_read:
            return (
                f"{name} reads {_list_tokens(read)} of the last layer, and "
                f"{_list_tokens(reference_read)} in the reference: is the right token pooled?"
            )
    return ""


def _tokens_read(output: Tensor, hidden: Tensor) -> list[int]:
    """Return the tokens of the first row of hidden states that an output depends on."""
    if not output.requires_grad or not hidden.requires_grad:
        return []
    # The plain sum over a normalized axis would have no gradient.
    total = (output**2).sum()
    (gradient,) = torch.autograd.grad(total, hidden, retain_graph=True, allow_unused=True)
    if gradient is None:
        return []
    sizes = gradient[0].abs().flatten(1).amax(1)
    return sizes.nonzero().flatten().tolist()


def _list_tokens(tokens: Sequence[int]) -> str:
    if len(tokens) == 1:
        return f"token {tokens[0]}"
    return f"{len(tokens)} tokens, from {tokens[0]} to {tokens[-1]}"


def _different_mask(models: ComparedModels) -> str:
    """Say which outputs change with a token of a row, if they do not in the reference."""
    batch = models.batches[0]
    for input_name, axis in TOKEN_INPUTS:
        mask = batch.real.get(axis)
        ids = batch.inputs.get(input_name)
        if mask is None or ids is None or ids.dim() != 2:
            continue
        row = int(mask.sum(1).argsort()[len(mask) // 2])  # neither the longest nor the shortest
        for place in _places(mask[row]):
            changed_ids = ids.clone()
            changed_ids[row, place] = (ids[row, place] + 1) % models.config.vocab_size
            inputs = {**batch.inputs, input_name: changed_ids}
            text = _different_changes(models, batch, inputs, axis, row, place)
            if text:
                return text
    return ""


def _places(mask: Tensor) -> list[int]:
    """Return the first, a middle and the last token of a row, and one of its padding."""
    tokens = mask.nonzero().flatten().tolist()
    padding = (~mask).nonzero().flatten().tolist()
    return sorted({tokens[0], tokens[len(tokens) // 2], tokens[-1], *padding[-1:]})


def _different_changes(
    models: ComparedModels,
    batch: InputBatch,
    changed_inputs: dict[str, Tensor],
    axis: str,
    row: int,
    place: int,
) -> str:
    """Say which output of a row reads a token that the reference's does not."""
    with torch.no_grad():
        outputs, _ = models.run_model(batch.inputs)
        changed_outputs, _ = models.run_model(changed_inputs)
        reference_outputs, _ = models.run_reference(models.reference, batch.inputs)
        changed_reference_outputs, _ = models.run_reference(models.reference, changed_inputs)
    mask = batch.real[axis][row]
    for name, axes in models.axes.items():
        if list(axes[:2]) != ["batch", axis]:
            continue
        reads = _vectors_differ(outputs[name][row], changed_outputs[name][row])
        reference_reads = _vectors_differ(
            reference_outputs[name][row], changed_reference_outputs[name][row]
        )
        readers = (reads & ~reference_reads & mask).nonzero().flatten().tolist()
        if not readers:
            continue
        if not mask[place]:
            return f"{name} reads padding: is the attention mask used?"
        if readers[0] < place:
            return f"{name} of a token reads later tokens: is the mask causal?"
        return f"{name} of token {readers[0]} reads token {place}, and not in the reference"
    return ""


def _vectors_differ(tensor: Tensor, other_tensor: Tensor) -> Tensor:
    """Return the tokens whose vectors differ, (tokens,), bool."""
    distance = (tensor - other_tensor).abs()
    return distance.reshape(len(tensor), -1).amax(1) > AGREES * tensor.abs().max()
