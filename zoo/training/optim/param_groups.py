"""Parameter groups of an optimizer, by weight decay and layer-wise learning rate."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from zoo.families.recipe import OptimizerConfig


def parameter_groups(model: "nn.Module", config: "OptimizerConfig") -> list[dict[str, Any]]:
    """Return the parameter groups of a model; a tied parameter is in one group, once."""
    # Parameters of fewer than two dimensions, biases and norms, have no weight decay. (Released
    # code selects by the names ``LayerNorm``, ``layer_norm`` and ``bias``, which is equivalent for
    # the models of the zoo.) For ``config.layerwise_lr_decay``, see ``layerwise_lr_scales``.
    scales = layerwise_lr_scales(model, config.layerwise_lr_decay)
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        scale = 1.0
        prefixes = [prefix for prefix in scales if name.startswith(prefix)]
        if prefixes:  # The outermost module takes precedence.
            scale = scales[min(prefixes, key=len)]
        decayed = parameter.dim() > 1
        group = groups.setdefault(
            (scale, decayed),
            {
                "params": [],
                "names": [],
                "scale": scale,
                "decayed": decayed,
                "weight_decay": config.weight_decay if decayed else 0.0,
            },
        )
        group["params"].append(parameter)
        group["names"].append(name)
    return list(groups.values())


def layerwise_lr_scales(model: "nn.Module", decay: float) -> dict[str, float]:
    """Return the learning-rate factors of the parts of a model, by prefix of parameter names."""
    # As ``_get_layer_lrs`` in model/optimization.py of the code released with Clark et al. 2020
    # (arXiv:2003.10555): of L layers, layer i (from 0) has decay ** (L + 1 - i), ``embeddings`` and
    # other modules that all layers read have decay ** (L + 2), and all other parameters, such as
    # heads, 1. So the last layer has decay ** 2: the released code counts one layer too many.
    #
    # A layer that is shared between depths counts once, and a mix of layers is not a layer. Each of
    # several stacks counts its own layers. Embeddings are below the stack next to them, or else
    # below the deepest one. See ``zoo.nn.stacks``.
    if decay == 1:
        return {}
    from zoo.nn.stacks import modules_below_layers, stacks

    depths = {stack: len(set(stack.order)) for stack in stacks(model)}
    if not depths:
        raise ValueError(f"layerwise_lr_decay is {decay}, and the model has no layers: leave 1")
    scales = {}
    for stack, depth in depths.items():
        for number in range(depth):
            scales[f"{stack.owner}layers.{number}."] = decay ** (depth + 1 - number)
    for name, reader in modules_below_layers(model).items():
        depth = max(depths.values()) if reader is None else depths[reader]
        scales[f"{name}."] = decay ** (depth + 2)
    return scales
