"""The registry of tasks: names, verbs and synonyms are one vocabulary; every part exists."""

import inspect

import pytest

from zoo.api import Model
from zoo.errors import UsageError
from zoo.evaluation.base import Evaluation
from zoo.families.tasks import Part, TaskSpec
from zoo.finetuning.task import FineTuningTask
from zoo.inference.task import Task
from zoo.plugins import all_families
from zoo.plugins.tasks import built_in_tasks, commands, find_task, find_tasks, load_part

PARTS: tuple[Part, ...] = ("predict", "train", "evaluate")
BASES: dict[Part, type] = {"predict": Task, "evaluate": Evaluation}
NAMED = [(spec, part) for spec in built_in_tasks().values() for part in PARTS if spec.has(part)]


@pytest.mark.parametrize(("spec", "part"), NAMED, ids=[f"{s.name}-{p}" for s, p in NAMED])
def test_a_part_is_found_by_every_name(spec: TaskSpec, part: Part) -> None:
    value = load_part(spec, part)
    if part == "train":
        assert isinstance(value, FineTuningTask)
        assert value.name == spec.name
    else:
        assert issubclass(value, BASES[part])
    for name in {spec.name, spec.command, *spec.synonyms}:
        assert spec in find_tasks(name, part), name
    assert find_task(spec.name, part) is spec


def test_names_and_synonyms_are_distinct() -> None:
    specs = built_in_tasks().values()
    names = [name for spec in specs for name in (spec.name, *spec.synonyms)]
    assert sorted(names) == sorted(set(names))
    assert [spec.name for spec in specs if spec.verb in names and spec.verb != spec.name] == []


def test_a_verb_of_several_tasks_does_not_choose_one() -> None:
    with pytest.raises(UsageError, match="classify is the verb of several tasks"):
        find_task("classify", "train")
    assert find_task("answer", "train").name == "question-answering"


def test_an_internal_task_is_not_suggested() -> None:
    with pytest.raises(UsageError) as error:
        find_task("sentence", "train")
    assert "sentences" not in str(error.value)


def test_python_has_a_typed_method_for_every_verb_of_a_head() -> None:
    """``model.run`` runs all; heads list the verbs, and the methods have the options of a task."""
    verbs = {t for f in all_families().values() for head in f.heads().values() for t in head.tasks}
    assert verbs <= set(commands()), "every verb of a head is a task"
    methods = {name.replace("_", "-"): method for name, method in vars(Model).items()}
    assert verbs - methods.keys() == set()
    for spec in built_in_tasks().values():
        if spec.command in ("embed", "similarity", "answer", "fill-mask"):
            parameters = inspect.signature(methods[spec.command]).parameters
            assert {option.name for option in spec.run_options} <= parameters.keys(), spec.name
