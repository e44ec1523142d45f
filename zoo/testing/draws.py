"""Random weights and inputs that leave a wrong formula no place to hide."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.export.spec import OnnxSpec

CHOICES = 4  # texts in a row of a model that chooses among them


def draw_weights(model: "nn.Module", seed: int = 0) -> None:
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
            if isinstance(module, torch.nn.LayerNorm) and module.weight is not None:
                module.weight.add_(1)


def draw_inputs(
    spec: "OnnxSpec", config: Any, lengths: Sequence[int], *, tokens: int = 0, seed: int = 0
) -> "dict[str, Tensor]":
    """Draw a batch of texts, padded on the right.

    Args:
        spec: names the inputs.
        config: the family's configuration.
        lengths: how many real tokens each row has.
        tokens: the width of the batch, by default the longest row's.
        seed: what is drawn depends on it and on each row's place alone, so a row is the same
            in batches of other shapes.

    Returns:
        int64 tensors of shape (batch, tokens) by input name; (batch, choices, tokens) where the
        model takes several texts in a row: they are of one length each.
    """
    import torch

    tokens = tokens or max(lengths)
    pad = getattr(config, "pad_token_id", None) or 0
    kinds: Mapping[str, int] = {"token_type_ids": getattr(config, "type_vocab_size", 1)}
    found = {}
    for order, (name, axes) in enumerate(spec.inputs.items()):
        choices = CHOICES if "choices" in axes else 1
        rows = torch.full((len(lengths) * choices, tokens), 0 if name != "input_ids" else pad)
        for row, length in enumerate(length for length in lengths for _ in range(choices)):
            generator = torch.Generator().manual_seed(seed * 7919 + row * 31 + order)
            high = kinds.get(name, config.vocab_size)
            drawn = torch.randint(0, high, (length,), generator=generator)
            if name == "input_ids":  # the padding token in a text would not be text
                drawn = torch.where(drawn == pad, (pad + 1) % high, drawn)
            rows[row, :length] = 1 if name == "attention_mask" else drawn
        found[name] = rows if choices == 1 else rows.view(len(lengths), choices, tokens)
    return found
