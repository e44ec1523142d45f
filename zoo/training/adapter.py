"""Runs that train an adapter and a head, and keep the pretrained model as it is."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from zoo.adapted_models.registry import adapter_settings, parse_adapter
from zoo.adapted_models.targets import AdaptableModel
from zoo.checkpoint import AdapterRecord, BaseRecord, weights_digest
from zoo.data.rng import torch_seed
from zoo.errors import UsageError
from zoo.families.base import LABELLED
from zoo.families.vocabulary import vocabulary_tensors

if TYPE_CHECKING:
    from zoo.objectives.base import TrainedModel
    from zoo.training.base import RunSetup
    from zoo.training.config.run_config import RunConfig
    from zoo.training.state.pretrained import InitRecord


def require_pretrained(config: "RunConfig") -> None:
    """Check that a run with an adapter starts from a pretrained model, and freezes no layers."""
    if config.adapter is None:
        return
    if config.init_from is None:
        raise UsageError(
            "an adapter changes a pretrained model, and the run begins with new weights",
            "name a model, or leave --adapter out",
        )
    if getattr(config, "freeze_layers", 0):
        raise UsageError(
            "an adapter keeps all layers as they are, and freeze_layers would freeze its own",
            "leave --freeze out",
        )


def add_adapter(setup: "RunSetup", model: nn.Module, new_parameters: Collection[str]) -> None:
    """Add the adapter of a run to its model, and freeze all that it does not train.

    The adapter is trained, with the head if it is learned from labels, and parameters that no
    checkpoint has.
    """
    networks = setup.objective.models_to_save(model)
    if len(networks) > 1:
        raise UsageError(
            f"{setup.objective.name} trains {len(networks)} models, and an adapter changes one",
            "leave --adapter out, or choose another objective",
        )
    network = networks["model"]
    base = None if setup.init is None else setup.init.config
    if base is not None and network.config.vocab_size > base.vocab_size:
        raise UsageError(
            "the task adds tokens, whose embeddings an adapter does not train",
            "leave --adapter out",
        )
    model_ids = {id(parameter) for parameter in network.module.parameters()}
    seed = torch_seed(setup.config.seed, "adapter")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        method = parse_adapter(setup.config.adapter or {})
        method.add_to(network.module, adaptable_model(setup, network))
    trained_names = {*new_parameters, *head_parameters(setup, network)}
    if getattr(setup.config, "trainable", "all") == "embeddings":
        trained_names |= set(vocabulary_tensors(setup.family, network.config, network.head))
    trained_ids = set()
    for name, parameter in network.module.named_parameters(remove_duplicate=False):
        if name in trained_names:
            trained_ids.add(id(parameter))
    # New parameters outside of the network, such as a projection's, are trained in any case.
    for parameter in network.module.parameters():
        is_of_adapter = id(parameter) not in model_ids
        parameter.requires_grad_(is_of_adapter or id(parameter) in trained_ids)


def adaptable_model(setup: "RunSetup", network: "TrainedModel") -> AdaptableModel:
    """Return what an adapter of a run may change."""
    return AdaptableModel.from_model(network.module, setup.family, network.config, network.head)


def head_parameters(setup: "RunSetup", network: "TrainedModel") -> set[str]:
    """Return the parameters of a head that is learned from labels."""
    family = setup.family
    config = network.config
    head = network.head
    if not LABELLED.intersection(family.heads()[head].tasks):
        return set()
    backbone = {entry.target for entry in family.weights(config, "none").entries()}
    return {entry.target for entry in family.weights(config, head).entries()} - backbone


def adapter_record(
    setup: "RunSetup", network: "TrainedModel", pretrained: "InitRecord"
) -> AdapterRecord:
    """Return the record of a run's adapter, with all settings and its base."""
    method = parse_adapter(setup.config.adapter or {}).resolved(adaptable_model(setup, network))
    base = pretrained.models["model"]
    reference = base.reference
    path = Path(reference).expanduser()
    if path.is_dir():
        reference = str(path.resolve())
    return AdapterRecord(
        settings=adapter_settings(method),
        base=BaseRecord(
            reference=reference,
            weights=weights_digest(base.files),
            head=base.head,
            source=base.source,
            licence=base.licence,
            languages=base.languages,
        ),
    )


def has_tokenizer_of_base(setup: "RunSetup") -> bool:
    """Return whether a run's model reads texts with the tokenizer of its base."""
    if setup.tokenizer is None:
        return True
    if setup.init is None or setup.init.tokenizer is None:
        return False
    return setup.tokenizer.json == setup.init.tokenizer.json
