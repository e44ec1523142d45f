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
    """Load a checkpoint into a model whose head may be new; return which parameters stay new.

    The highest ``reinit_layers`` layers and the modules named in ``new_modules`` keep their new
    weights.
    """
    checkpoint = init.checkpoints["model"]
    reference = init.init_config.model
    model = network.module
    loaded = dict[int, Tensor]()
    skipped_modules = new_modules(init, network, reinit_layers)
    new_rows = max(0, network.config.vocab_size - checkpoint.config.vocab_size)
    unused_names = copy_weights(
        reference, checkpoint, network, loaded, skip=skipped_modules, new_rows=new_rows
    )
    missing_weights = MissingWeights(model, loaded, [])
    # Weights that the bare backbone lacks, or need not have, may be absent.
    backbone = family.weights(network.config, "none").entries()
    required_names = {entry.target for entry in backbone if not entry.optional}
    full_model = family.weights(network.config, network.head).entries()
    optional_names = {entry.target for entry in full_model} - required_names
    skipped_prefixes = tuple(f"{module}." for module in skipped_modules)
    new_names = []
    for name in missing_weights.names:
        if name in optional_names or name.startswith(skipped_prefixes):
            new_names.append(name)
    missing_weights.validate(new_names, reference, f"the head {network.head}")
    if announce:
        if new_names:
            state = model.state_dict()
            modules = ", ".join(missing_weights.modules(new_names))
            count = sum(state[name].numel() for name in new_names)
            LOG.info("new weights: %s (%s)", modules, f"{count:,}")
        else:
            LOG.info("all weights come from %s", reference)
        if unused_names:
            names = {entry.target for entry in checkpoint.weights.entries()}
            parts = ", ".join(outermost_parts(unused_names, names.difference(unused_names)))
            LOG.info(
                "not used of %s, with the head %s: %s", reference, describe_head(checkpoint), parts
            )
        if new_rows:
            LOG.info("new embeddings of %s tokens, which %s lacks", new_rows, reference)
    record = ModelRecord.from_checkpoint(reference, checkpoint, unused_names)
    return _init_record(init, {"model": record}, new_names)


def record_new_weights(init: PretrainedInit, model: nn.Module) -> InitRecord:
    """Return the record of a model that only has a checkpoint's configuration and tokenizer."""
    return _init_record(init, {}, list(model.state_dict()))


def _init_record(
    init: PretrainedInit, models: dict[str, ModelRecord], new_parameters: list[str]
) -> InitRecord:
    return InitRecord(
        config=msgspec.to_builtins(init.config),
        tokenizer=None if init.tokenizer is None else init.tokenizer.info,
        generation=dict(init.generation),
        models=models,
        new_parameters=new_parameters,
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

    def can_split(number: int) -> bool:
        """Return whether so many layers share no weights with the others, in any stack."""
        for stack in all_stacks:
            position = number if lowest else max(0, len(stack.order) - number)
            if not stack.can_split_at(position):
                return False
        return True

    if not can_split(count):
        possible_counts = [str(number) for number in range(1, deepest + 1) if can_split(number)]
        raise UsageError(
            f"{count} layers cannot {change}: they share their weights with others",
            f"set {setting} to {' or '.join(possible_counts)}, or leave it out",
        )


def highest_layers(model: nn.Module, count: int) -> list[str]:
    """Return the names of the highest layers of each stack and of the pooler."""
    if not count:
        return []
    all_stacks = list(stacks(model))
    _require_layers(
        all_stacks, count, lowest=False, change="get new weights", setting="reinit_layers"
    )
    names: list[str] = []
    for stack in all_stacks:
        names += stack.at(slice(-count, None))
    return [*names, "pooler"]


def freeze_lowest(model: nn.Module, count: int) -> None:
    """Exclude the lowest layers of each stack, and all below them, from training; 0 for none.

    Below them are the embeddings, and what all layers read, such as relative positions.
    """
    if not count:
        return
    all_stacks = list(stacks(model))
    _require_layers(all_stacks, count, lowest=True, change="be frozen", setting="--freeze")
    frozen_modules = list(modules_below_layers(model))
    for stack in all_stacks:
        frozen_modules += stack.at(slice(count))
    frozen_prefixes = tuple(f"{name}." for name in frozen_modules)
    for name, parameter in model.named_parameters():
        if name.startswith(frozen_prefixes):
            parameter.requires_grad_(False)
