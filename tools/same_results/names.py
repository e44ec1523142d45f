"""Names in the registries of the installed version, as JSON; an environment's interpreter runs it.

What ``tools.same_results`` has to cover follows from these lists. Where the code moves a registry,
its place changes here.
"""

import json
import typing
from importlib import import_module
from typing import Any

import msgspec


def fields(struct: Any) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(struct)]


def task_parts() -> dict[str, dict[str, Any]]:
    """Return part -> task -> names of its settings."""
    from zoo.plugins.tasks import built_in_tasks, load_part

    parts: dict[str, dict[str, Any]] = {"predict": {}, "train": {}, "evaluate": {}}
    for name, spec in built_in_tasks().items():
        for part, tasks in parts.items():
            if not spec.has(part):  # type: ignore[arg-type]
                continue
            tasks[name] = spec.command
            if part == "train":
                tasks[name] = fields(load_part(spec, "train").options_type)
    return parts


def embedding_losses() -> list[str]:
    losses = _optional_module("zoo.finetuning.embeddings.losses")
    if losses is not None:
        return list(losses.BUILT_IN)
    older = import_module("zoo.tasks.sentence_embedding.train_options")
    return list(typing.get_args(older.Loss))


def reranker_losses() -> dict[str, list[str]]:
    from zoo.tasks.reranker.losses import Weighting

    training: Any = import_module("zoo.tasks.reranker.train")
    names = getattr(training, "LossName", None) or training.Kind
    return {"losses": list(typing.get_args(names)), "weightings": list(typing.get_args(Weighting))}


def _optional_module(name: str) -> Any:
    """Return a module, or ``None`` in versions that do not have it."""
    try:
        return import_module(name)
    except ImportError:
        return None


def adapters() -> dict[str, list[str]]:
    room = _optional_module("zoo.adapted_models.registry")
    registry: Any = room or import_module("zoo.adapters.registry")
    if hasattr(registry, "ADAPTERS"):
        return {name: fields(registry.ADAPTERS.find(name)) for name in registry.ADAPTERS.built_in}
    return {name: fields(registry.adapter_method(name)) for name in registry.METHODS}


def targets() -> dict[str, list[str]]:
    room = _optional_module("zoo.exporting.targets") or import_module("zoo.export.targets")
    return {name: list(room.find_target(name).precisions) for name in room.BUILT_IN}


def families() -> dict[str, list[str]]:
    """Return family -> names of its heads."""
    from zoo.plugins import all_families

    return {name: list(family.heads()) for name, family in sorted(all_families().items())}


def distillation_losses() -> dict[str, list[str]]:
    losses: Any = import_module("zoo.distillation.losses")
    if hasattr(losses, "DISTILLATION_LOSSES"):
        find = losses.DISTILLATION_LOSSES.find
        return {name: list(find(name).setting_names()) for name in losses.BUILT_IN}
    return {name: list(losses.loss_type(name).settings()) for name in losses.loss_names()}


def recipes() -> list[str]:
    from zoo.distillation.recipes import all_recipes
    from zoo.plugins import all_families

    return sorted({name for family in all_families().values() for name in all_recipes(family)})


def objectives() -> list[str]:
    from zoo.objectives import OBJECTIVES
    from zoo.plugins import all_families

    family_objectives = [name for family in all_families().values() for name in family.objectives]
    return sorted({*OBJECTIVES, *family_objectives})


def optimizers() -> list[str]:
    registry: Any = import_module("zoo.training.optim.optimizers")
    if hasattr(registry, "OPTIMIZERS"):
        return list(registry.OPTIMIZERS.built_in)
    from zoo.families.recipe import OptimizerConfig

    return list(typing.get_args(typing.get_type_hints(OptimizerConfig)["name"]))


def metrics() -> list[str]:
    """Return the metrics of generated texts that users select."""
    registry = _optional_module("zoo.plugins.metrics")
    return [] if registry is None else list(registry.selectable_metrics("texts"))


def suites() -> list[str]:
    registry = _optional_module("zoo.plugins.suites")
    return [] if registry is None else list(registry.BUILT_IN)


def probes() -> list[str]:
    """Return the tasks of probing."""
    registry = _optional_module("zoo.probing.tasks")
    return [] if registry is None else list(registry.BUILT_IN)


def schedules() -> list[str]:
    from zoo.families.recipe import LRSchedulerConfig

    return list(typing.get_args(typing.get_type_hints(LRSchedulerConfig)["name"]))


def commands() -> dict[str, Any]:
    """Return command -> its help text, and its parameters with all that is declared of them."""
    import click

    from zoo.cli import cli

    descriptions: dict[str, Any] = {}

    def visit(command: click.Command, path: tuple[str, ...], parent: click.Context | None) -> None:
        name = path[-1] if path else "zoo"
        context = click.Context(command, parent=parent, info_name=name)
        parameters = {}
        for parameter in command.get_params(context):
            facts = parameter.to_info_dict()
            facts["hidden"] = getattr(parameter, "hidden", False)
            words = [*parameter.opts, *parameter.secondary_opts]
            parameters[" ".join(words)] = json.loads(json.dumps(facts, default=repr))
        descriptions[" ".join(path)] = {"help": command.get_help(context), "parameters": parameters}
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                below = command.get_command(context, child)
                if below is not None:
                    visit(below, (*path, child), context)

    visit(cli, (), None)
    return descriptions


LISTS = (
    task_parts,
    embedding_losses,
    reranker_losses,
    adapters,
    targets,
    families,
    distillation_losses,
    recipes,
    objectives,
    optimizers,
    metrics,
    suites,
    probes,
    schedules,
    commands,
)

if __name__ == "__main__":
    print(json.dumps({make.__name__: make() for make in LISTS}))
