"""Which parameters are updated alike: what decays, and how fast each layer learns."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from zoo.families.recipe import OptimizerConfig


def parameter_groups(model: "nn.Module", config: "OptimizerConfig") -> list[dict[str, Any]]:
    """Sort parameters into groups for an optimizer; a tied one is in one group, once.

    Weight decay spares what has fewer than two dimensions: biases and norms. (Released code goes
    by the names ``LayerNorm``, ``layer_norm`` and ``bias``, which comes to the same for the
    models of the zoo.) Layers have rates of their own with ``settings.layerwise_lr_decay``; see
    ``layerwise_lr_scales``.

    Args:
        model: on its device, sharded if it is to be.
        settings: of the optimizer.

    Returns:
        groups in the order in which the model has parameters, each with ``params``, their
        ``names`` in the model, ``scale`` (see ``set_hyperparams``), ``decayed`` (if weight decay
        applies and, in LAMB, the trust ratio) and ``weight_decay``.

    Raises:
        ValueError: layers are to have rates of their own, and the model has no ``layers``.
    """
    scales = layerwise_lr_scales(model, config.layerwise_lr_decay)
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        scale, decayed = _scale(name, scales), parameter.dim() > 1
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
    """Return what the rates of parts of a model are multiplied by, by the parts' names.

    As ``_get_layer_lrs`` in model/optimization.py of the code released with Clark et al. 2020
    (arXiv:2003.10555): of L layers, number i (from 0) has decay ** (L + 1 - i), what is called
    ``embeddings`` has decay ** (L + 2), and all else, heads above all, 1. So the last layer has
    decay ** 2: the released code counts one more layer than there is, and is followed.

    A layer that runs several times counts once. Of several stacks, each counts its own layers;
    embeddings are below the stack beside them, or else below the deepest one.

    Args:
        model: has ``layers``, an ``nn.ModuleList``, at any depth, and ``embeddings``.
        decay: a number above 0, where 1 is for one rate.

    Returns:
        prefix of parameters' names -> scale, without those of scale 1.

    Raises:
        ValueError: there are no ``layers`` to tell apart.
    """
    if decay == 1:
        return {}
    from torch import nn

    stacks = {
        name: len(module)
        for name, module in model.named_modules()
        if name.split(".")[-1] == "layers" and isinstance(module, nn.ModuleList)
    }
    if not stacks:
        raise ValueError(f"layerwise_lr_decay is {decay}, and the model has no layers: leave 1")
    scales = {
        f"{name}.{number}.": decay ** (depth + 1 - number)
        for name, depth in stacks.items()
        for number in range(depth)
    }
    for name, _ in model.named_modules():
        if name.split(".")[-1] == "embeddings":
            beside = f"{name[: -len('embeddings')]}layers"
            scales[f"{name}."] = decay ** (stacks.get(beside, max(stacks.values())) + 2)
    return scales


def _scale(name: str, scales: dict[str, float]) -> float:
    found = [prefix for prefix in scales if name.startswith(prefix)]
    return scales[min(found, key=len)] if found else 1.0  # the outermost part decides
