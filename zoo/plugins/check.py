"""Checks of installed plugins, each in a subprocess.

``load`` imports only the module of the entry point, and a family imports its other files on use.
Here all modules of the package are imported, the hooks are called, and the ``tiny`` size of each
family is built with each head, on the meta device.
"""

import os
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from zoo.io.limits import PLUGIN_CHECK_SECONDS
from zoo.plugins.discovery import PluginInfo

if TYPE_CHECKING:
    from zoo.families.base import Family

TESTS = ("tests", "test", "conftest")


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
            [sys.executable, "-m", "zoo.plugins.check", name, str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writing],
        )
        os.close(writing)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            return [f"its files are not imported after {seconds:g} s"]
        finally:
            child.kill()
            child.wait()
        lines = results.read().splitlines()
    ended = bool(lines) and lines.pop() == "end"
    return lines if ended else [*lines, f"importing its files ends the process, with {code}"]


def problems(name: str) -> Iterator[str]:
    """Yield the problems of a plugin; runs in the subprocess.

    Args:
        name: name of the plugin.
    """
    from zoo.plugins.discovery import installed
    from zoo.plugins.provided import families_of

    plugin = installed()[name]
    for module in _modules(plugin):
        yield from _attempt(f"import {module}", lambda module=module: import_module(module))
    try:
        families = families_of(name)
    except Exception as error:
        yield _line("zoo_families", error)
        return
    for family in families:
        yield from _family_problems(family)


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
    import torch

    try:
        heads, tiny = list(family.heads()), family.sizes()["tiny"]
    except Exception as error:
        yield _line(f"heads and sizes of {family.name}", error)
        return
    for head in heads:
        label = f"{family.name} with head {head}"
        yield from _attempt(f"weights of {label}", lambda h=head: family.weights(tiny, h).entries())
        with torch.device("meta"):
            yield from _attempt(f"model of {label}", lambda h=head: family.model(tiny, h))


def _attempt(label: str, call: Any) -> Iterator[str]:
    try:
        call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third party's module can raise anything
        yield _line(label, error)


def _line(label: str, error: BaseException) -> str:
    message = " ".join(str(error).split())
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
