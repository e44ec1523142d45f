"""Checks of installed plugins, each in a subprocess.

``load`` imports only the module of the entry point, and a family imports its other files on use.
Here all modules of the package are imported, the hooks are called, the ``tiny`` size of each family
is built with each head, and the conformance checks that need no files and no training run on it.
"""

import contextlib
import inspect
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.conformance.declaration import check_declaration
from zoo.errors import ZooError
from zoo.io.limits import PLUGIN_CHECK_SECONDS
from zoo.plugins.discovery import PluginInfo
from zoo.plugins.named import (
    KINDS,
    NamedObject,
    import_class,
    import_instance,
    named_objects,
)

if TYPE_CHECKING:
    from zoo.conformance.family_checks import FamilyChecks
    from zoo.families.base import Family
    from zoo.families.config import Config

TESTS = ("tests", "test", "conftest")
NOT_QUICK = (
    "check_golden_file",
    "check_imports",
    "check_loss_decreases",
    "check_fine_tuning",
    "check_export",
    "check_published_tensors",
    "check_reference_defaults",
    "check_reference_outputs",
)  # these need files, the reference library, or training
VOCABULARY = 1000  # tokens of the models that are run


def check_plugins(names: Sequence[str]) -> dict[str, list[str]]:
    """Check plugins in parallel.

    Args:
        names: names of plugins, each with one distribution.

    Returns:
        name -> problems, one line each.
    """
    with ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as pool:
        return dict(zip(names, pool.map(check_plugin, names), strict=True))


def check_plugin(name: str, seconds: float = PLUGIN_CHECK_SECONDS) -> list[str]:
    """Check one plugin in a subprocess, and return its problems.

    Args:
        name: name of the plugin.
        seconds: time limit of the subprocess.
    """
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8", errors="replace") as results:
        child = subprocess.Popen(
            [sys.executable, "-m", "zoo.conformance.plugin_checks", name, str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writing],
        )
        os.close(writing)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            return [f"its checks take more than {seconds:g} s"]
        finally:
            child.kill()
            child.wait()
        lines = results.read().splitlines()
    ended = bool(lines) and lines.pop() == "end"
    return lines if ended else [*lines, f"a check ends the process, with {code}"]


def problems(name: str) -> Iterator[str]:
    """Yield the problems of a plugin; runs in the subprocess.

    Args:
        name: name of the plugin.
    """
    from zoo.conformance.plugin_report import provided_names
    from zoo.plugins.discovery import installed
    from zoo.plugins.provided import families_of

    plugin = installed()[name]
    module_name = plugin.module.partition(":")[0].strip()
    yield from _attempt(f"declaration of {name}", lambda: check_declaration(module_name))
    for module in _modules(plugin):
        yield from _attempt(f"import {module}", lambda module=module: import_module(module))
    try:
        families = families_of(name)
        provided_names(plugin)
    except Exception as error:
        yield _line("hooks", error)
        return
    for kind in KINDS:
        for named in named_objects(kind):
            if named.plugin_name == name:
                yield from _attempt(f"{named.noun} {named.name}", lambda named=named: _use(named))
    for family in families:
        yield from _family_problems(family)


def _use(named: NamedObject) -> None:
    """Import an objective, a task or a command, and check its type."""
    import click

    from zoo.inference.tasks.base import Task
    from zoo.objectives.base import Objective

    if named.kind == "commands":
        import_instance(named, click.Command)
    else:
        base = Task if named.kind == "tasks" else Objective
        import_class(named.kind, named.name, {}, base)


def _modules(plugin: PluginInfo) -> Iterable[str]:
    """Yield the modules of a plugin's package, without its tests."""
    first = plugin.module.partition(":")[0].strip()
    yield first
    package = sys.modules.get(first)
    paths = getattr(package, "__path__", None)
    for info in walk_packages(paths, f"{first}.", onerror=lambda name: None) if paths else ():
        if not any(part in TESTS or part.startswith("test_") for part in info.name.split(".")):
            yield info.name


def _family_problems(family: "Family") -> Iterator[str]:
    try:
        heads, tiny = list(family.heads()), family.sizes()["tiny"]
    except Exception as error:
        yield _line(f"heads and sizes of {family.name}", error)
        return
    builds = [problem for head in heads for problem in _build_problems(family, tiny, head)]
    yield from builds or _conformance_problems(family, tiny, heads)


def _build_problems(family: "Family", config: "Config", head: str) -> Iterator[str]:
    """Yield the problems of building the rules and the model, which has no weights."""
    from zoo.nn.layers.skip_init import init_empty_weights

    label = f"{family.name} with head {head}"
    yield from _attempt(f"weights of {label}", lambda: family.weights(config, head).entries())
    with init_empty_weights():
        yield from _attempt(f"model of {label}", lambda: family.model(config, head))


def _conformance_problems(
    provided: "Family", tiny: "Config", heads: Sequence[str]
) -> Iterator[str]:
    """Yield the conformance checks that fail; see ``zoo.conformance.family_checks``."""
    from zoo.conformance.family_checks import FamilyChecks

    class Checks(FamilyChecks):
        family = provided

        @property
        def config(self) -> Any:
            return _smaller(tiny)

    checks = Checks()
    for name in sorted(name for name in dir(checks) if name.startswith("check_")):
        if name not in NOT_QUICK:
            for arguments in _arguments(getattr(checks, name), heads):
                yield from _run_check(checks, name, arguments)


def _arguments(check: Callable[..., None], heads: Sequence[str]) -> Iterable[dict[str, str]]:
    """Return the arguments of the calls of a check: every head, and the size ``tiny``."""
    parameters = inspect.signature(check).parameters
    size = {"size": "tiny"} if "size" in parameters else {}
    return [{**size, "head": head} for head in heads] if "head" in parameters else [size]


def _run_check(checks: "FamilyChecks", name: str, arguments: dict[str, str]) -> Iterator[str]:
    from zoo.conformance.tiny_model import NotApplicable

    check = getattr(checks, name)
    label = f"{name.removeprefix('check_').replace('_', ' ')} of {checks.family.name}"
    if "head" in arguments:
        label += f" with head {arguments['head']}"
    with tempfile.TemporaryDirectory() as folder:
        files = {"directory": Path(folder)}
        needed = inspect.signature(check).parameters.keys() & files.keys()

        def run() -> None:
            with contextlib.suppress(NotApplicable):
                check(**arguments, **{name: files[name] for name in needed})

        yield from _attempt(label, run)


def _smaller(config: "Config") -> "Config":
    """Return a configuration whose checks are quick, with dropout for the check of it."""
    values = msgspec.structs.asdict(config)
    ids = [v for name, v in values.items() if name.endswith("_id") and isinstance(v, int)]
    changes = {
        "vocab_size": min(values.get("vocab_size", 0), max(VOCABULARY, *ids, 0) + 1),
        "dropout": values.get("dropout") or 0.1,
    }
    return msgspec.structs.replace(config, **{n: v for n, v in changes.items() if n in values})


def _attempt(label: str, call: Any) -> Iterator[str]:
    try:
        call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third party's module can raise anything
        yield _line(label, error)


def _line(label: str, error: BaseException) -> str:
    message = " ".join(str(error).split())
    if isinstance(error, ZooError):  # raised by a check
        return f"{label}: {message}"
    place = next(reversed(traceback.extract_tb(error.__traceback__)), None)
    location = f" ({os.path.basename(place.filename)}, line {place.lineno})" if place else ""
    if isinstance(error, SyntaxError):  # its message has the location
        location = ""
    return f"{label}: {type(error).__name__}: {message}{location}"


def _main(name: str, results: int) -> None:
    with open(results, "w", encoding="utf-8", errors="backslashreplace") as file:
        for problem in problems(name):
            print(problem, file=file, flush=True)
        print("end", file=file, flush=True)
    os._exit(0)  # despite threads that the plugin started


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
