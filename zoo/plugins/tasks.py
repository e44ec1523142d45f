"""Registry of tasks: their declarations, and the classes that run, train and evaluate them.

A built-in task is a folder of ``zoo.tasks`` and a line in ``BUILT_IN``. A plugin's is an entry
point of ``zoo.api1.tasks`` that names a ``TaskSpec``, or a subclass of ``zoo.inference.task.Task``
for a task of ``zoo run`` only. A class is imported when it is used. These are the only strings in
the project that name modules of higher layers.
"""

import functools
import importlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError, did_you_mean
from zoo.families.tasks import ModelField, Part, TaskSpec
from zoo.plugins.entry_point_objects import (
    broken_name,
    broken_object,
    find_object,
    import_object,
    is_named,
    named_objects,
    usable,
)

if TYPE_CHECKING:
    from zoo.plugins.entry_point_objects import NamedObject

# Modules with declarations, in the order of help texts; the first task of a head is its default.
BUILT_IN = (
    "zoo.tasks.sentence_embedding",
    "zoo.tasks.sparse_embedding",
    "zoo.tasks.late_interaction",
    "zoo.tasks.retrieval",
    "zoo.tasks.fill_mask",
    "zoo.tasks.features",
    "zoo.tasks.causal_lm",
    "zoo.tasks.seq2seq",
    "zoo.tasks.text_classification",
    "zoo.tasks.token_classification",
    "zoo.tasks.ordinal_regression",
    "zoo.tasks.setfit",
    "zoo.tasks.pet",
    "zoo.tasks.reranker",
    "zoo.tasks.pair_classification",
    "zoo.tasks.zero_shot",
    "zoo.tasks.prompt",
    "zoo.tasks.question_answering",
    "zoo.tasks.multiple_choice",
    "zoo.tasks.likelihood",
    "zoo.tasks.next_sentence",
    "zoo.tasks.replaced_tokens",
    "zoo.tasks.sentences",
)
TRAINING = "zoo.finetuning.task:FineTuningTask"  # Class of the part that trains.
BASE = "zoo.inference.task:Task"  # Base of classes that plugins name without a declaration.
# Part -> what a task with it is called in messages.
NOUNS: dict[Part, str] = {
    "predict": "task",
    "train": "task of fine-tuning",
    "evaluate": "evaluation",
}


@functools.cache
def built_in_tasks() -> dict[str, TaskSpec]:
    """Return name -> declaration of every built-in task."""
    specs: dict[str, TaskSpec] = {}
    for module_name in BUILT_IN:
        module = importlib.import_module(module_name)
        for spec in module.TASKS:
            specs[spec.name] = spec
    return specs


def model_fields() -> dict[str, ModelField]:
    """Return name -> field of ``config.json`` that tasks set."""
    fields: dict[str, ModelField] = {}
    for spec in built_in_tasks().values():
        for field in spec.model_fields:
            fields[field.name] = field
    return fields


def reserved_names() -> set[str]:
    """Return the names and verbs of built-in tasks, which take precedence over plugins'."""
    names: set[str] = set()
    for spec in built_in_tasks().values():
        names.update((spec.name, spec.command))
    return names


def public_tasks(part: Part) -> list[TaskSpec]:
    """Return the built-in tasks that have a part, without internal ones."""
    return [spec for spec in built_in_tasks().values() if spec.has(part) and not spec.internal]


def commands() -> dict[str, str]:
    """Return command -> one-line help of all tasks of ``zoo run``; imports no plugin."""
    summaries: dict[str, str] = {}
    for spec in public_tasks("predict"):
        summaries.setdefault(spec.command, spec.verb_summary or spec.summary)
    for plugin_object in usable("tasks", reserved_names()).values():
        summaries[plugin_object.name] = f"See {plugin_object.origin}."
    return summaries


def completed_names(part: Part, heads: Collection[str] | None = None) -> list[str]:
    """Return the names, verbs and synonyms of public tasks with a part, for shell completion.

    Args:
        part: what a command does.
        heads: heads of the model's family; ``None`` for any.
    """
    names: list[str] = []
    for spec in public_tasks(part):
        if heads is not None and spec.heads and not {*spec.heads}.intersection(heads):
            continue
        names += (spec.command, spec.name, *spec.synonyms)
    names += [plugin_object.name for plugin_object in named_objects("tasks")]
    return list(dict.fromkeys(names))


def plugin_task(plugin_object: "NamedObject") -> TaskSpec:
    """Return the declaration of a plugin's task; imports the plugin."""
    value = import_object(plugin_object)
    if isinstance(value, type) and issubclass(value, _imported(BASE)):
        summary = (value.__doc__ or "").strip().partition("\n")[0]
        value = TaskSpec(getattr(value, "name", ""), summary, predict=plugin_object.target)
    if not isinstance(value, TaskSpec):
        reason = f"{plugin_object.target} is neither a TaskSpec nor a Task"
        raise broken_object(plugin_object, reason)
    if value.name != plugin_object.name:
        raise broken_name(plugin_object, value.name)
    return value


def compared_tasks() -> list[TaskSpec]:
    """Return the tasks with metrics by which models are compared, including plugins' tasks."""
    specs = [*built_in_tasks().values(), *_plugin_tasks()]
    return [spec for spec in specs if spec.metrics and spec.has("evaluate")]


def selecting_tasks() -> list[TaskSpec]:
    """Return the tasks whose evaluations take ``--metric``, including plugins' tasks."""
    specs = []
    for spec in (*built_in_tasks().values(), *_plugin_tasks()):
        if any(option.name == "metric" for option in spec.eval_options):
            specs.append(spec)
    return specs


def find_tasks(name: str, part: Part) -> list[TaskSpec]:
    """Return the tasks of a name, verb or synonym that have a part; several may share a verb."""
    specs = [spec for spec in built_in_tasks().values() if spec.has(part)]
    by_name = [spec for spec in specs if spec.name == name]
    by_verb = [spec for spec in specs if spec.verb == name]
    if by_name or by_verb:
        _warn_of_conflict(name)
        return by_name or by_verb
    if is_named("tasks", name):
        spec = plugin_task(find_object("tasks", name, reserved_names()))
        if not spec.has(part):
            raise UsageError(f"{spec.name} is not a {NOUNS[part]}", "its plugin has no such part")
        return [spec]
    by_synonym = [spec for spec in specs if name in spec.synonyms]
    if by_synonym:
        return by_synonym
    of_plugins = [spec for spec in _plugin_tasks() if spec.known_as(name) and spec.has(part)]
    if of_plugins:
        return of_plugins
    raise UsageError(f"no {NOUNS[part]} is called {name!r}", _hint(name, part))


def _hint(name: str, part: Part) -> str:
    """Return which task to use in place of a name that no task with a part has."""
    trained_task = built_in_tasks().get(name)
    if trained_task is not None and trained_task.pipeline_tag:
        # The models of a task such as setfit are used by another task.
        tag = trained_task.pipeline_tag
        for spec in built_in_tasks().values():
            if spec.has(part) and tag in (spec.name, *spec.synonyms):
                return f"use {_name_for_users(spec, part)} for models of {name}"
    similar = did_you_mean(name, completed_names(part))
    if similar:
        return similar
    names = {_name_for_users(spec, part) for spec in public_tasks(part)}
    names.update(plugin_object.name for plugin_object in named_objects("tasks"))
    return f"there are {', '.join(sorted(names))}"


def _name_for_users(spec: TaskSpec, part: Part) -> str:
    """Return the name of a task in commands with a part: its verb in ``zoo run``."""
    return spec.command if part == "predict" else spec.name


def _warn_of_conflict(name: str) -> None:
    """Warn of plugins whose tasks have names of built-in ones."""
    if is_named("tasks", name):
        usable("tasks", reserved_names())


def _plugin_tasks() -> Iterator[TaskSpec]:
    yield from map(plugin_task, usable("tasks", reserved_names()).values())


def find_task(name: str, part: Part) -> TaskSpec:
    """Return the task of a name, verb or synonym that has a part."""
    specs = find_tasks(name, part)
    if len(specs) > 1:
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(f"{name} is the verb of several tasks", f"name one: {names}")
    return specs[0]


def load_part(spec: TaskSpec, part: Part) -> Any:
    """Return the class of a task's part; imports its module."""
    target: str = getattr(spec, part)
    if spec.name not in built_in_tasks():
        if part == "train":
            _imported(TRAINING)  # So that the time that torch takes is not the plugin's.
        plugin_object = find_object("tasks", spec.name, reserved_names())
        return import_object(plugin_object._replace(target=target))
    return _imported(target)


def _imported(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def task_losses(spec: TaskSpec) -> list[Any]:
    """Return the classes of the losses that a task declares for its help."""
    return list(_imported(spec.losses)())


def training_task(name: str) -> Any:
    """Return the class that trains a task; see ``find_task`` for the errors."""
    return load_part(find_task(name, "train"), "train")


def evaluation_task(name: str) -> Any:
    """Return the class that evaluates a task; see ``find_task`` for the errors."""
    return load_part(find_task(name, "evaluate"), "evaluate")
