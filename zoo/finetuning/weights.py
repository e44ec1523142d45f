"""Initial weights of fine-tuning: a pretrained backbone with a new or pretrained head."""

import logging
from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor, nn

from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.finetuning.heads import HEAD, describe_head, serves_other_task
from zoo.nn.stacks import Stack, modules_below_layers, stacks
from zoo.objectives.base import TrainedModel
from zoo.training.state.load_weights import MissingWeights, copy_weights
from zoo.training.state.pretrained import InitRecord, ModelRecord, PretrainedInit
from zoo.weights.names import outermost_parts

LOG = logging.getLogger("zoo")


@torch.no_grad()
def load_backbone(
    init: PretrainedInit,
    family: Family,
    network: TrainedModel,
    *,
    reinit_layers: int,
    announce: bool,
) -> InitRecord:
    """Load a checkpoint into a model whose head may be new; return which parameters stay new."""
    # The highest ``reinit_layers`` layers and the modules named in ``new_modules`` keep their new
    # weights.
    checkpoint = init.checkpoints["model"]
    reference = init.init_config.model
    model = network.module
    filled = dict[int, Tensor]()
    skip = new_modules(init, network, reinit_layers)
    before = checkpoint.config.vocab_size
    size = network.config.vocab_size
    unused = copy_weights(
        reference, checkpoint, network, filled, skip=skip, new_rows=max(0, size - before)
    )
    missing = MissingWeights(model, filled, [])
    # what the bare backbone lacks, or need not have, may be absent
    backbone = family.weights(network.config, "none").entries()
    required = {entry.target for entry in backbone if not entry.optional}
    optional = {
        entry.target for entry in family.weights(network.config, network.head).entries()
    } - required
    new = [
        name
        for name in missing.names
        if name in optional or any(name.startswith(f"{part}.") for part in skip)
    ]
    missing.validate(new, reference, f"the head {network.head}")
    if announce:
        if new:
            state = model.state_dict()
            modules = ", ".join(missing.modules(new))
            count = sum(state[name].numel() for name in new)
            LOG.info("new weights: %s (%s)", modules, f"{count:,}")
        else:
            LOG.info("all weights come from %s", reference)
        if unused:
            used = {entry.target for entry in checkpoint.weights.entries()}.difference(unused)
            parts = ", ".join(outermost_parts(unused, used))
            LOG.info(
                "not used of %s, with the head %s: %s", reference, describe_head(checkpoint), parts
            )
        if size > before:
            LOG.info("new embeddings of %s tokens, which %s lacks", size - before, reference)
    record = ModelRecord.from_checkpoint(reference, checkpoint, unused)
    return InitRecord(
        config=msgspec.to_builtins(init.config),
        tokenizer=None if init.tokenizer is None else init.tokenizer.info,
        generation=dict(init.generation),
        models={"model": record},
        new_parameters=new,
    )


def new_modules(init: PretrainedInit, network: TrainedModel, reinit_layers: int) -> list[str]:
    """Return the names of the modules of a model that have new weights."""
    names = [*init.init_config.new_modules, *highest_layers(network.module, reinit_layers)]
    if serves_other_task(init.checkpoints["model"], network.head, network.config.problem):
        names.append(HEAD)
    return names


def _require_layers(
    all_stacks: Sequence[Stack], count: int, *, lowest: bool, change: str, setting: str
) -> None:
    """Check that a model has so many layers, which share no weights with the others."""
    deepest = max((len(stack.order) for stack in all_stacks), default=0)
    if count > deepest:
        raise UsageError(
            f"{count} layers cannot {change}: the model has {deepest}", f"set a lower {setting}"
        )

    def are_apart(number: int) -> bool:
        return all(
            stack.can_split_at(number if lowest else max(0, len(stack.order) - number))
            for stack in all_stacks
        )

    if not are_apart(count):
        possible = " or ".join(str(k) for k in range(1, deepest + 1) if are_apart(k))
        raise UsageError(
            f"{count} layers cannot {change}: they share their weights with others",
            f"set {setting} to {possible}, or leave it out",
        )


def highest_layers(model: nn.Module, count: int) -> list[str]:
    """Return the names of the highest layers of each stack and of the pooler."""
    if not count:
        return []
    all_stacks = list(stacks(model))
    _require_layers(
        all_stacks, count, lowest=False, change="get new weights", setting="reinit_layers"
    )
    return [*(name for stack in all_stacks for name in stack.at(slice(-count, None))), "pooler"]


def freeze_lowest(model: nn.Module, count: int) -> None:
    """Exclude the lowest layers of each stack, and all below them, from training; 0 for none."""
    # Below them are the embeddings, and what all layers read, such as relative positions.
    if not count:
        return
    all_stacks = list(stacks(model))
    _require_layers(all_stacks, count, lowest=True, change="be frozen", setting="--freeze")
    layers = [name for stack in all_stacks for name in stack.at(slice(count))]
    frozen = tuple(f"{name}." for name in (*modules_below_layers(model), *layers))
    for name, parameter in model.named_parameters():
        if name.startswith(frozen):
            parameter.requires_grad_(False)
