"""Checks of installed plugins, each in a subprocess."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pkgutil import walk_packages

import msgspec

from zoo.conformance.declaration import check_declaration
from zoo.conformance.kit import Finding, attempt, check_family, check_objective_of_plugin, describe
from zoo.families.distillation import DistillationRecipe
from zoo.io.json import dump_json
from zoo.io.limits import MAX_PLUGIN_CHECK_SECONDS, MAX_PLUGIN_FULL_CHECK_SECONDS
from zoo.plugins.discovery import PluginInfo, declared_model_types
from zoo.plugins.entry_point_objects import (
    KINDS,
    NamedObject,
    broken_object,
    import_class,
    import_instance,
    named_objects,
)

TESTS = ("tests", "test", "conftest")


def check_plugins(names: Sequence[str], *, full: bool = False) -> dict[str, list[Finding]]:
    """Check plugins in parallel."""
    seconds = MAX_PLUGIN_FULL_CHECK_SECONDS if full else MAX_PLUGIN_CHECK_SECONDS
    with ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as pool:
        findings_of_each = pool.map(lambda name: check_plugin(name, seconds, full=full), names)
        return dict(zip(names, findings_of_each, strict=True))


def check_plugin(
    name: str, seconds: float = MAX_PLUGIN_CHECK_SECONDS, *, full: bool = False
) -> list[Finding]:
    """Check one plugin in a subprocess, and return what is found."""
    # ``load`` imports only the module of the entry point, and a family imports its other files on
    # use. Here all modules of the package are imported, the hooks are called, the ``tiny`` size of
    # each family is built with each head, and the conformance checks that need no training run on
    # it, or all of them.
    options = ["full"] if full else []
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8", errors="replace") as results:
        child = subprocess.Popen(
            [sys.executable, "-m", "zoo.conformance.plugin_checks", name, str(writing), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # the models are too small for threads, which other plugins' checks compete with
            env={"OMP_NUM_THREADS": "1", **os.environ},
            pass_fds=[writing],  # the plugin may print, so results have a pipe of their own
        )
        os.close(writing)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            return [Finding(f"its checks take more than {seconds:g} s")]
        finally:
            child.kill()
            child.wait()
        lines = results.read().splitlines()
    ended = lines[-1:] == ["end"]  # else the process was ended by a check or the system
    reported = [_parse(line) for line in lines if line != "end"]
    return reported if ended else [*reported, Finding(f"a check ends the process, with {code}")]


def _parse(line: str) -> Finding:
    """Return the finding in a line; a line that the plugin printed is a finding as well."""
    try:
        return msgspec.json.decode(line, type=Finding)
    except msgspec.DecodeError:
        return Finding(line)


def findings(name: str, *, full: bool) -> Iterator[Finding]:
    """Yield what the checks of a plugin find; runs in the subprocess."""
    from zoo.conformance.plugin_report import provided_names
    from zoo.plugins.discovery import installed
    from zoo.plugins.registry import families_of, implementations

    plugin = installed()[name]
    module_name = plugin.module.partition(":")[0].strip()
    yield from attempt(f"declaration of {name}", lambda: check_declaration(module_name))
    for module in _modules(plugin):
        yield from attempt(f"import {module}", lambda module=module: import_module(module))
    try:
        families = families_of(name)
        provided_names(plugin)
    except Exception as error:
        yield Finding(describe("hooks", error))
        return
    model_types = {model_type for family in families for model_type in family.model_types}
    for model_type, declaring in declared_model_types().items():
        if name in declaring and model_type not in model_types:
            yield Finding(
                f"model type {model_type}: an entry point declares it, but no family has it"
            )
    for kind in KINDS:
        for named in named_objects(kind):
            if named.plugin_name == name:
                yield from attempt(f"{named.noun} {named.name}", lambda named=named: _use(named))
                if full and named.kind == "objectives":
                    yield from check_objective_of_plugin(named.name)
    for family in families:
        yield from check_family(family, full=full)
        for recipe in family.distillation():
            yield from _check_recipe(recipe)
    for recipe in implementations(name, "zoo_recipes"):
        yield from _check_recipe(recipe)


def _check_recipe(recipe: DistillationRecipe) -> Iterator[Finding]:
    """Yield what is wrong with the terms of a distillation recipe."""
    from zoo.distillation.term_tables import checked_recipe

    yield from attempt(f"distillation recipe {recipe.name}", lambda: checked_recipe(recipe))


def _use(named: NamedObject) -> None:
    """Import an object of a plugin, check its type, and compute a distillation loss."""
    import click

    from zoo.conformance.loss_checks import check_distillation_loss
    from zoo.conformance.plugin_report import CATALOGS
    from zoo.evaluation.base import Evaluation
    from zoo.exporting.targets import target_class
    from zoo.families.tasks import Part
    from zoo.finetuning.task import FineTuningTask
    from zoo.inference.task import Task
    from zoo.objectives.base import Objective
    from zoo.plugins.metrics import plugin_metric
    from zoo.plugins.suites import plugin_suite
    from zoo.plugins.tasks import load_part, plugin_task

    if named.kind == "commands":
        import_instance(named, click.Command)
    elif named.kind == "tasks":
        spec = plugin_task(named)
        bases: dict[Part, type] = {"predict": Task, "evaluate": Evaluation}
        for part, base in bases.items():
            if spec.has(part) and not issubclass(load_part(spec, part), base):
                raise broken_object(named, f"{getattr(spec, part)} is not a {base.__name__}")
        if spec.train and not isinstance(load_part(spec, "train"), FineTuningTask):
            raise broken_object(named, f"{spec.train} is not a FineTuningTask")
    elif named.kind == "metrics":
        plugin_metric(named)
    elif named.kind == "suites":
        plugin_suite(named)
    elif named.kind == "targets":
        target_class(named.name)
    else:
        bases_by_kind: dict[str, type] = {"objectives": Objective}
        bases_by_kind |= {catalog.kind: catalog.base_class() for catalog in CATALOGS}
        value = import_class(named.kind, named.name, {}, bases_by_kind[named.kind])
        if named.kind == "distillation_losses":
            check_distillation_loss(value)


def _modules(plugin: PluginInfo) -> Iterable[str]:
    """Yield the modules of a plugin's package, without its tests."""
    first = plugin.module.partition(":")[0].strip()
    yield first
    package = sys.modules.get(first)
    paths = getattr(package, "__path__", None)
    for info in walk_packages(paths, f"{first}.", onerror=lambda name: None) if paths else ():
        if not any(part in TESTS or part.startswith("test_") for part in info.name.split(".")):
            yield info.name


def _main(name: str, results: int, *, full: bool) -> None:
    with open(results, "w", encoding="utf-8") as file:
        for finding in findings(name, full=full):
            print(dump_json(msgspec.to_builtins(finding)), file=file, flush=True)
        print("end", file=file, flush=True)
    os._exit(0)  # despite threads that the plugin started


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), full="full" in sys.argv[3:])
