"""The functions of ``zoo`` have the parameters, defaults and limits of the commands."""

import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import click
import pytest

import zoo
from zoo.api.arguments import RANGES, Range, literal_values
from zoo.cli import cli
from zoo.cli.task_options import declared_options
from zoo.inference.processing.passages import Chunks
from zoo.inference.processing.windows import WindowPooling
from zoo.plugins.tasks import find_task, find_tasks
from zoo.tasks.retrieval.approximate import SearchMethod
from zoo.tasks.token_classification.entities import Aggregate

# Function -> its command.
COMMANDS = {
    "convert": "convert",
    "distill": "distill",
    "evaluate": "eval",
    "export": "export",
    "finetune": "finetune",
    "look": "look",
    "loss_surface": "loss-surface",
    "pretrain": "pretrain",
    "probe": "probe",
    "push": "push",
    "retokenize": "retokenize",
    "run": "run",
    "verify": "verify",
}
# Options of all commands, which say what is printed.
PRINTED = {"as_json", "verbose", "quiet"}
# Function -> options that only make sense on a command line.
ONLY_COMMAND = {
    "finetune": {"data_folder", "suite", "tasks", "mixture"},  # Of `finetune_suite`.
    "evaluate": {"data_folder"},  # Of a suite; `eval` in Python.
    "distill": {"print_recipe"},
    "run": {"text_is_text"},
    # A text that names a file is likely a mistake only there; files are `layer_similarity`'s.
    "look": {"text_is_text", "source", "unit"},
}
# Function -> parameters without an option: calls, and options of plugins.
ONLY_FUNCTION = {
    "evaluate": {"on_prediction", "options"},
    "export": {"options"},
    "finetune": {"options"},
    "run": {"task", "options"},
    "verify": {"on_check"},
}
REQUIRED = inspect.Parameter.empty
LITERALS = {  # Choices of methods, whose annotations are text.
    "output_dtype": zoo.api.VectorType,
    "search_method": SearchMethod,
    "aggregate": Aggregate,
    "window_pooling": WindowPooling,
    "chunks": Chunks,
}


def function(name: str) -> Callable[..., Any]:
    value: Callable[..., Any] = getattr(zoo, name)
    return value


def command(name: str) -> click.Command:
    context = click.Context(cli)
    found = cli.get_command(context, COMMANDS[name])
    if isinstance(found, click.Group):  # of tasks, whose options ``run`` takes by name
        found = found.get_command(context, "features")
    assert found is not None
    return found


def python_name(parameter: click.Parameter) -> str:
    """Return the name of an option as an argument: ``--no-parity`` is ``parity``."""
    if isinstance(parameter, click.Argument):
        assert parameter.name is not None
        return parameter.name
    flag = max(parameter.opts, key=len)
    if not parameter.secondary_opts:
        flag = flag.replace("--no-", "--")
    return flag.removeprefix("--").replace("-", "_")


def default(parameter: click.Parameter) -> Any:
    """Return the default that an option has in Python."""
    if parameter.required:
        return REQUIRED
    if (isinstance(parameter, click.Option) and parameter.multiple) or parameter.nargs == -1:
        return ()
    value = parameter.default
    if not isinstance(value, str | int | float):  # click marks an option without a default.
        value = None
    if is_flag(parameter) and not value:
        return True if parameter.opts[0].startswith("--no-") else value
    return value


def task_options(name: str) -> set[str]:
    """Return the options of tasks, which a function takes by name."""
    if name == "finetune":
        return {option.name for option in declared_options("train")}
    if name == "evaluate":
        return {option.name for option in declared_options("evaluate")}
    if name == "run":
        return {option.name for option in find_task("features", "predict").run_options}
    return set()


def parameters(name: str) -> dict[str, click.Parameter]:
    """Return the parameters of a command by their names in Python."""
    skipped = PRINTED | ONLY_COMMAND.get(name, set())
    skipped |= task_options(name)
    options = {python_name(p): p for p in command(name).params if p.name not in skipped}
    if name == "evaluate":
        options["model"] = options.pop("ref")  # It may also be a loaded model.
    options.pop("set", None)  # Settings are a mapping in Python; see the test of them.
    return options


def is_flag(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.is_flag


@pytest.mark.parametrize("name", COMMANDS)
def test_parameters_and_defaults_are_those_of_the_command(name: str) -> None:
    signature = inspect.signature(function(name))
    options = parameters(name)
    only_function = ONLY_FUNCTION.get(name, set())
    if any(option.name == "assignments" for option in command(name).params):
        only_function = only_function | {"settings"}  # ``--set KEY=VALUE``
    assert set(signature.parameters) == set(options) | only_function
    for option_name, option in options.items():
        declared = signature.parameters[option_name]
        expected = default(option)
        if is_flag(option) and expected is None:
            assert declared.default in (None, False), option_name
        else:
            assert declared.default == expected, option_name


@pytest.mark.parametrize("name", COMMANDS)
def test_all_but_what_a_command_reads_first_is_given_by_name(name: str) -> None:
    arguments = {p.name for p in command(name).params if isinstance(p, click.Argument)}
    if name == "distill":
        arguments = {"teacher", "student"}
    elif name == "evaluate":
        arguments = {"model"}
    elif name == "run":
        arguments |= {"task"}
    for parameter in inspect.signature(function(name)).parameters.values():
        if parameter.name in arguments:
            assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        elif parameter.kind is not parameter.VAR_KEYWORD:
            assert parameter.kind is parameter.KEYWORD_ONLY, parameter.name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_describes_each_parameter(name: str) -> None:
    text = inspect.getdoc(function(name)) or ""
    section = text.partition("\nArgs:\n")[2].partition("\nReturns:\n")[0]
    names = [line.strip().partition(":")[0] for line in section.splitlines() if line[4:5] != " "]
    described = [name.strip("*") for name in names if name]
    assert described == list(inspect.signature(function(name)).parameters)
    assert "\nReturns:\n" in text and "\nRaises:\n" in text and "\nExample:\n" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_choices_and_ranges_are_those_of_the_command(name: str) -> None:
    signature = inspect.signature(function(name))
    for option_name, option in parameters(name).items():
        annotation = signature.parameters[option_name].annotation
        if isinstance(option.type, click.Choice) and literal_values(annotation):
            assert literal_values(annotation) == list(option.type.choices), option_name
        if option_name in RANGES and isinstance(option.type, click.IntRange | click.FloatRange):
            limits = RANGES[option_name]
            assert option.type.min == limits.minimum, option_name
            assert option.type.min_open == limits.is_open, option_name
            assert option.type.max in (None, limits.maximum), option_name


def bad_values() -> list[tuple[str, str, Any]]:
    """Return function, parameter, and a value that the command refuses."""
    cases: list[tuple[str, str, Any]] = []
    for name in COMMANDS:
        for option_name, option in parameters(name).items():
            if isinstance(option.type, click.IntRange | click.FloatRange):
                if option.type.min is not None:
                    cases.append((name, option_name, option.type.min - 1))
            elif isinstance(option.type, click.Choice):
                cases.append((name, option_name, "no-such-choice"))
    return cases


def required_arguments(name: str) -> dict[str, Any]:
    """Return values of the arguments that a function needs; its model does not exist."""
    values: dict[str, Any] = {}
    for parameter in inspect.signature(function(name)).parameters.values():
        if parameter.default is REQUIRED and parameter.kind is not parameter.VAR_KEYWORD:
            values[parameter.name] = "no-such-model"
    return values


@pytest.mark.parametrize(("name", "option", "value"), bad_values())
def test_what_the_command_refuses_is_refused(name: str, option: str, value: Any) -> None:
    """The message names the argument or its value, and not the model, which does not exist."""
    arguments = required_arguments(name) | {option: value}
    with pytest.raises(zoo.errors.UsageError) as refusal:
        function(name)(**arguments)
    message = str(refusal.value).replace("-", "_")
    assert option in message or str(value).replace("-", "_") in message
    assert "no_such_model" not in message


# Methods of a model whose options are those of a task of ``zoo run``.
METHODS = (
    "answer",
    "embed",
    "fill_mask",
    "next_sentence",
    "rerank",
    "search",
    "sentence_order",
    "sentence_structure",
    "similarity",
)


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_a_model_have_the_options_of_their_task(name: str) -> None:
    signature = inspect.signature(getattr(zoo.Model, name))
    (task,) = find_tasks(name.replace("_", "-"), "predict")
    for option in task.run_options:
        declared = signature.parameters[option.name]
        if declared.default is not REQUIRED:  # What the command asks for is an argument.
            assert declared.default == option.default, option.name
        values = literal_values(LITERALS.get(option.name, str))
        assert values == list(option.choices), option.name


def test_functions_are_functions_after_all_modules_are_imported() -> None:
    """No module of a package hides a function of its name."""
    modules = [module.name for module in pkgutil.iter_modules(zoo.__path__)]
    assert {"conversion", "exporting", "inspection"} <= set(modules)
    lines = ["import importlib, zoo"]
    lines += [f"importlib.import_module('zoo.{name}')" for name in modules if name != "__main__"]
    lines += [f"assert callable(zoo.{name}), {name!r}" for name in COMMANDS]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_a_range_has_its_ends_unless_it_is_open() -> None:
    assert RANGES["epochs"] == Range(0, None, True)
    with pytest.raises(zoo.errors.UsageError, match="epochs is 0; it takes a number that is more"):
        zoo.api.arguments.require_range("epochs", 0, RANGES["epochs"])
    zoo.api.arguments.require_range("max_drop", 1, RANGES["max_drop"])
    for value in (float("nan"), "3"):
        with pytest.raises(zoo.errors.UsageError):
            zoo.api.arguments.require_range("top_k", value, RANGES["top_k"])


def test_a_name_is_in_no_range() -> None:
    """The head of a conversion is a name, and the head whose attention is looked at is a number."""

    @zoo.api.arguments.checked
    def convert(head: str | None = None) -> str | None:
        return head

    @zoo.api.arguments.checked
    def look(head: int | None = None) -> int | None:
        return head

    assert convert(head="masked-lm") == "masked-lm"
    assert look(head=1) == 1
    with pytest.raises(zoo.errors.UsageError, match="head is 0"):
        look(head=0)
