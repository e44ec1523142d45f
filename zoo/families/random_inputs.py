"""Random weights and inputs that leave a wrong formula no place to hide."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.families.onnx import OnnxSpec

CHOICES = 4  # texts in a row of a model that chooses among them


def randomize_weights(model: "nn.Module", seed: int = 0) -> None:
    """Set a model's parameters in place, biases and norms far from their initial values.

    Fresh biases are zero and fresh norms one, which would hide a swapped or forgotten one. The
    matrices keep activations near unit size.
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
        for module in model.modules():
            if (
                isinstance(module, torch.nn.LayerNorm | torch.nn.RMSNorm)
                and module.weight is not None
            ):
                module.weight.add_(1)


def random_inputs(
    spec: "OnnxSpec", config: Any, lengths: Sequence[int], *, tokens: int = 0, seed: int = 0
) -> "dict[str, Tensor]":
    """Draw a batch of texts, padded on the right.

    Args:
        spec: names the inputs.
        config: the family's configuration.
        lengths: how many real tokens each row has; see ``axis_lengths``.
        tokens: the width of the batch, by default the longest row's.
        seed: what is drawn depends on it and on each row's place alone, so a row is the same
            in batches of other shapes.

    Returns:
        int64 tensors of shape (batch, tokens) by input name; (batch, choices, tokens) where the
        model takes several texts in a row: they are of one length each. The last token of a
        source is the one that ends texts, where the family has one.
    """
    import torch

    wider = max(0, tokens - max(lengths))
    real = axis_lengths(spec, lengths)
    end = getattr(config, "eos_token_id", -1)
    pad = getattr(config, "pad_token_id", None) or 0
    kinds: Mapping[str, int] = {
        "token_type_ids": getattr(config, "type_vocab_size", 1),
        "character_ids": getattr(config, "characters", 1),
        "attention_mask": 2,
    }
    found = {}
    for order, (name, axes) in enumerate(spec.inputs.items()):
        choices = CHOICES if "choices" in axes else 1
        fixed = [axis for axis in axes if isinstance(axis, int)]  # what each token consists of
        along, are_ids = real[_last(axes)], name.endswith("input_ids")
        width = max(along) + wider
        rows = torch.full((len(lengths) * choices, width, *fixed), pad if are_ids else 0)
        for row, length in enumerate(length for length in along for _ in range(choices)):
            generator = torch.Generator().manual_seed(seed * 7919 + row * 31 + order)
            high = kinds.get(name, config.vocab_size)
            low = 1 if fixed else 0  # 0 stands for nothing there
            drawn = torch.randint(low, high, (length, *fixed), generator=generator)
            if are_ids:  # the padding token in a text would not be text, nor an end in its midst
                other = next(t for t in ((pad + 1) % high, (pad + 2) % high) if t != end)
                drawn = torch.where((drawn == pad) | (drawn == end), other, drawn)
            if name == "input_ids" and end >= 0:
                drawn[-1] = end
            rows[row, :length] = 1 if name.endswith("attention_mask") else drawn
        found[name] = rows if choices == 1 else rows.view(len(lengths), choices, width)
    return found


def _last(axes: Sequence[str | int]) -> str:
    """Return the last axis that is not of a fixed size."""
    return [axis for axis in axes if isinstance(axis, str)][-1]


def axis_lengths(spec: "OnnxSpec", lengths: Sequence[int]) -> dict[str, list[int]]:
    """Return how many places of each row are real, along each axis that is padded.

    Args:
        spec: names the axes.
        lengths: along the axis called ``tokens``. Along others, such as the tokens of a target,
            rows have other lengths: the same in reverse, each one more.
    """
    axes = {_last(axes) for axes in spec.inputs.values()}
    return {
        axis: list(lengths) if axis == "tokens" else [n + 1 for n in reversed(lengths)]
        for axis in axes
    }
