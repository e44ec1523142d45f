"""Random weights and inputs for tests, chosen so that wrong formulas give other outputs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.families.onnx import OnnxSpec

CHOICES = 4  # texts per example of a multiple-choice model


def randomize_weights(model: "nn.Module", seed: int = 0) -> None:
    """Draw all parameters of a model in place, and buffers that are stored.

    Biases and norms are drawn too: initial ones are all 0 and 1, which would hide one that is
    swapped or forgotten. The scale of the matrices keeps activations near unit size.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.empty(parameter.shape, dtype=torch.float32).normal_(generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)
            else:
                parameter.copy_(noise * 0.3)
        parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        for name, buffer in model.state_dict().items():
            if name not in parameters and buffer.is_floating_point():
                noise = torch.empty(buffer.shape, dtype=torch.float32).normal_(generator=generator)
                buffer.copy_(noise * 0.3)
        for module in model.modules():
            if (
                isinstance(module, torch.nn.LayerNorm | torch.nn.RMSNorm)
                and module.weight is not None
            ):
                module.weight.add_(1)


def random_inputs(
    spec: "OnnxSpec",
    config: Any,
    lengths: Sequence[int],
    *,
    tokens: int = 0,
    seed: int = 0,
    padding_side: str = "right",
) -> "dict[str, Tensor]":
    """Return a batch of random rows.

    Args:
        spec: declares the inputs.
        config: the family's configuration.
        lengths: number of tokens in each row, padding excluded; see ``axis_lengths``.
        tokens: number of columns of the batch; by default the length of the longest row.
        seed: seed of the draws. They only depend on it and on the index of the row, so that a
            row is the same in batches of other shapes.
        padding_side: ``left`` or ``right``.

    Returns:
        int64 tensors by input name, (batch, tokens), or (batch, choices, tokens) for multiple
        choice, with choices of one length. The last token of ``input_ids`` is ``eos_token_id``, and
        the first of ``decoder_input_ids`` is ``decoder_start_token_id``, if the configuration has
        them; no token is ``mask_token_id``.
    """
    import torch

    extra_columns = max(0, tokens - max(lengths))
    lengths_by_axis = axis_lengths(spec, lengths)
    end = getattr(config, "eos_token_id", -1)
    decoder_start = getattr(config, "decoder_start_token_id", -1)
    pad = getattr(config, "pad_token_id", None) or 0
    sizes: Mapping[str, int] = {
        "token_type_ids": getattr(config, "type_vocab_size", 1),
        "character_ids": getattr(config, "characters", 1),
        "attention_mask": 2,
        "p_mask": 1,  # 0 for all tokens: a short row has an answer in any case.
    }
    inputs = {}
    for order, (name, axes) in enumerate(spec.inputs.items()):
        choices = CHOICES if "choices" in axes else 1
        # A fixed axis is the number of characters of a word, for example.
        fixed_axes = [axis for axis in axes if isinstance(axis, int)]
        row_lengths = []
        for length in lengths_by_axis[_last(axes)]:
            row_lengths += [length] * choices
        are_ids = name.endswith("input_ids")
        width = max(row_lengths) + extra_columns
        rows = torch.full((len(row_lengths), width, *fixed_axes), pad if are_ids else 0)
        for row, length in enumerate(row_lengths):
            generator = torch.Generator().manual_seed(seed * 7919 + row * 31 + order)
            low = 1 if fixed_axes else 0  # A character id of 0 is padding.
            high = sizes.get(name, config.vocab_size)
            values = torch.randint(low, high, (length, *fixed_axes), generator=generator)
            if name.endswith("attention_mask"):
                values = torch.ones_like(values)
            if are_ids:
                _replace_special(values, config, pad, end)
            if name == "input_ids" and end >= 0:
                values[-1] = end
            if name == "decoder_input_ids" and decoder_start >= 0:
                values[0] = decoder_start
            start = width - length if padding_side == "left" else 0
            rows[row, start : start + length] = values
        inputs[name] = rows if choices == 1 else rows.view(len(lengths), choices, width)
    return inputs


def _replace_special(ids: "Tensor", config: Any, pad: int, end: int) -> None:
    """Replace padding, mask and end of text by another token, in place."""
    special_ids = {pad, end}
    mask = getattr(config, "mask_token_id", None)
    if mask is not None:
        special_ids.add(mask)
    candidates = ((pad + step) % config.vocab_size for step in range(1, 4))
    substitute = next(token for token in candidates if token not in special_ids)
    for token in special_ids:
        ids[ids == token] = substitute


def _last(axes: Sequence[str | int]) -> str:
    """Return the last dynamic axis."""
    return [axis for axis in axes if isinstance(axis, str)][-1]


def axis_lengths(spec: "OnnxSpec", lengths: Sequence[int]) -> dict[str, list[int]]:
    """Return the length of each row without padding, along each padded axis.

    Along axes other than ``tokens``, such as ``decoder_tokens``, they are ``lengths`` in reverse,
    plus one, up to the limit.
    """
    lengths_by_axis = {}
    for axes in spec.inputs.values():
        axis = _last(axes)
        if axis == "tokens":
            lengths_by_axis[axis] = list(lengths)
        else:
            longer = [length + 1 for length in reversed(lengths)]
            if axis in spec.limits:
                longer = [min(length, spec.limits[axis]) for length in longer]
            lengths_by_axis[axis] = longer
    return lengths_by_axis
