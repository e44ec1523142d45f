"""Registry of tasks: their declarations, and the classes that run, train and evaluate them.

A built-in task is a folder of ``zoo.tasks`` and a line in ``BUILT_IN``. A plugin's is an entry
point of ``zoo.api1.tasks`` that names a ``TaskSpec``, or a subclass of ``zoo.inference.task.Task``
for a task of ``zoo run`` only. A class is imported when it is used. These are the only strings in
the project that name modules of higher layers.
"""

import functools
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError, did_you_mean
from zoo.families.tasks import ModelField, Part, TaskSpec
from zoo.plugins.entry_point_objects import (
    broken_object,
    find_object,
    import_object,
    is_named,
    named_objects,
    usable,
)

if TYPE_CHECKING:
    from zoo.plugins.entry_point_objects import NamedObject

# modules with declarations, in the order of help texts; the first task of a head is its default
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
BASE = "zoo.inference.task:Task"  # of classes that plugins name without a declaration
# part -> what a task with it is called in messages
NOUNS: dict[Part, str] = {
    "predict": "task",
    "train": "task of fine-tuning",
    "evaluate": "evaluation",
}


@functools.cache
def built_in_tasks() -> dict[str, TaskSpec]:
    """Return name -> declaration of every built-in task."""
    modules = map(importlib.import_module, BUILT_IN)
    return {spec.name: spec for module in modules for spec in module.TASKS}


def model_fields() -> dict[str, ModelField]:
    """Return name -> field of ``config.json`` that tasks set."""
    return {field.name: field for spec in built_in_tasks().values() for field in spec.model_fields}


def reserved_names() -> set[str]:
    """Return the names and verbs of built-in tasks, which take precedence over plugins'."""
    specs = built_in_tasks().values()
    return {name for spec in specs for name in (spec.name, spec.command)}


def public_tasks(part: Part) -> list[TaskSpec]:
    """Return the built-in tasks that have a part, without internal ones."""
    return [spec for spec in built_in_tasks().values() if spec.has(part) and not spec.internal]


def commands() -> dict[str, str]:
    """Return command -> one-line help of all tasks of ``zoo run``; imports no plugin."""
    found: dict[str, str] = {}
    for spec in public_tasks("predict"):
        found.setdefault(spec.command, spec.verb_summary or spec.summary)
    plugins = usable("tasks", reserved_names()).values()
    return found | {named.name: f"See {named.origin}." for named in plugins}


def completed_names(part: Part) -> list[str]:
    """Return the names, verbs and synonyms of public tasks with a part, for shell completion."""
    public = public_tasks(part)
    known = [name for spec in public for name in (spec.command, spec.name, *spec.synonyms)]
    return list(dict.fromkeys([*known, *(named.name for named in named_objects("tasks"))]))


def plugin_task(named: "NamedObject") -> TaskSpec:
    """Return the declaration of a plugin's task; imports the plugin."""
    value = import_object(named)
    if isinstance(value, type) and issubclass(value, _imported(BASE)):
        summary = (value.__doc__ or "").strip().partition("\n")[0]
        value = TaskSpec(getattr(value, "name", ""), summary, predict=named.target)
    if not isinstance(value, TaskSpec):
        raise broken_object(named, f"{named.target} is neither a TaskSpec nor a Task")
    if getattr(value, "name", None) != named.name:
        raise broken_object(named, f"{named.target} has another name")
    return value


def compared_tasks() -> list[TaskSpec]:
    """Return the tasks with metrics by which models are compared, including plugins' tasks."""
    specs = [*built_in_tasks().values(), *_plugin_tasks()]
    return [spec for spec in specs if spec.metrics and spec.has("evaluate")]


def find_tasks(name: str, part: Part) -> list[TaskSpec]:
    """Return the tasks of a name, verb or synonym that have a part; several may share a verb."""
    specs = [spec for spec in built_in_tasks().values() if spec.has(part)]
    if exact := [spec for spec in specs if spec.name == name]:
        _warn_of_conflict(name)
        return exact
    if shared := [spec for spec in specs if spec.verb == name]:
        _warn_of_conflict(name)
        return shared
    if is_named("tasks", name):
        spec = plugin_task(find_object("tasks", name, reserved_names()))
        if not spec.has(part):
            raise UsageError(f"{spec.name} is not a {NOUNS[part]}", "its plugin has no such part")
        return [spec]
    if known := [spec for spec in specs if name in spec.synonyms]:
        return known
    if others := [spec for spec in _plugin_tasks() if spec.known_as(name) and spec.has(part)]:
        return others
    plugins = [named.name for named in named_objects("tasks")]
    public = public_tasks(part)
    listed = {_called(spec, part) for spec in public} | {*plugins}
    hint = did_you_mean(name, completed_names(part)) or f"there are {', '.join(sorted(listed))}"
    if (trained := built_in_tasks().get(name)) and trained.pipeline_tag:  # such as setfit's
        same = (spec for spec in specs if trained.pipeline_tag in (spec.name, *spec.synonyms))
        if instead := next(same, None):
            hint = f"use {_called(instead, part)} for models of {name}"
    raise UsageError(f"no {NOUNS[part]} is called {name!r}", hint)


def _called(spec: TaskSpec, part: Part) -> str:
    return spec.command if part == "predict" else spec.name


def _warn_of_conflict(name: str) -> None:
    """Warn of plugins whose tasks have names of built-in ones."""
    if is_named("tasks", name):
        usable("tasks", reserved_names())


def _plugin_tasks() -> Iterator[TaskSpec]:
    yield from map(plugin_task, usable("tasks", reserved_names()).values())


def find_task(name: str, part: Part) -> TaskSpec:
    """Return the task of a name, verb or synonym that has a part."""
    found = find_tasks(name, part)
    if len(found) > 1:
        names = ", ".join(spec.name for spec in found)
        raise UsageError(f"{name} is the verb of several tasks", f"name one: {names}")
    return found[0]


def load_part(spec: TaskSpec, part: Part) -> Any:
    """Return the class of a task's part; imports its module."""
    target: str = getattr(spec, part)
    if spec.name not in built_in_tasks():
        named = find_object("tasks", spec.name, reserved_names())
        return import_object(named._replace(target=target))
    return _imported(target)


def _imported(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def training_task(name: str) -> Any:
    """Return the class that trains a task; see ``find_task`` for the errors."""
    return load_part(find_task(name, "train"), "train")


def evaluation_task(name: str) -> Any:
    """Return the class that evaluates a task; see ``find_task`` for the errors."""
    return load_part(find_task(name, "evaluate"), "evaluate")
