"""The interfaces that docs/api.md promises, as text: Python names, and options of commands.

    python -m tests.interfaces      # writes the snapshots, which tests/test_api.py compares

A change of a snapshot needs a line in the changelog.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from zoo.cli import cli

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "fixtures" / "interfaces"
PACKAGES = ("families", "nn", "objectives", "weights")  # what built-in families are built from
BUILT_IN, EXAMPLES = ROOT / "plugins", ROOT / "examples" / "plugins"


def commands(group: click.Group = cli, name: str = "zoo") -> Iterator[tuple[str, click.Command]]:
    """Yield name and command of a group and of all commands in it, such as ``zoo corpus build``."""
    yield name, group
    context = click.Context(group)
    for child in group.list_commands(context):
        command = group.get_command(context, child)
        assert command is not None, child
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {child}")
        else:
            yield f"{name} {child}", command


def option_lines() -> Iterator[str]:
    """Yield a line for each argument and option of each command."""
    for name, command in commands():
        for parameter in command.params:
            options = ", ".join(sorted([*parameter.opts, *parameter.secondary_opts]))
            is_option = isinstance(parameter, click.Option)
            yield f"{name} {options if is_option else parameter.human_readable_name}"


def signature(function: Callable[..., Any]) -> str:
    """Return a signature without the names of modules of the standard library."""
    text = str(inspect.signature(function))
    for module in ("typing.", "collections.abc."):
        text = text.replace(module, "")
    return text.replace("pathlib._local.", "pathlib.")  # of Python 3.13


def class_lines(name: str, kind: type, *, until: type = object) -> Iterator[str]:
    """Yield a line for a class and each public attribute of it and of its bases below ``until``."""
    yield f"{name}{signature(kind)}"
    members: dict[str, Any] = {}
    for base in kind.__mro__[: kind.__mro__.index(until)]:
        members = dict.fromkeys(base.__annotations__) | vars(base) | members
    for member, value in sorted(members.items()):
        if not member.startswith("_"):
            yield f"{name}.{member}{signature(value) if inspect.isfunction(value) else ''}"


def error_lines() -> Iterator[str]:
    """Yield a line for each class of errors, with its exit code."""
    from zoo import errors

    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.ZooError):
            yield f"zoo.errors.{name}{signature(kind)}, exit code {kind.exit_code}"


def hook_lines() -> Iterator[str]:
    """Yield a line for the marker of hooks, and for each hook."""
    from zoo.plugins import hookspecs

    yield f"zoo.plugins.hookspecs.hookimpl, of the project {hookspecs.hookimpl.project_name}"
    for name, hook in vars(hookspecs).items():
        if name.startswith("zoo_"):
            yield f"zoo.plugins.hookspecs.{name}{signature(hook)}"


def python_lines() -> Iterator[str]:
    """Yield a line for each name that the table of Python names lists one by one."""
    import zoo
    from zoo.contrib import datatrove, lm_eval, mteb
    from zoo.nn.capture import capture
    from zoo.overrides import override
    from zoo.testing import FamilyTests, ReferenceTests

    yield from (f"zoo.{name}" for name in zoo.__all__)
    for name in zoo.__all__:
        value = getattr(zoo, name)
        if inspect.isfunction(value):
            yield f"zoo.{name}{signature(value)}"
    yield from class_lines("zoo.Model", zoo.Model)
    yield from error_lines()
    yield f"zoo.nn.capture.capture{signature(capture)}"
    yield from hook_lines()
    yield f"zoo.overrides.override({next(iter(inspect.signature(override).parameters))})"
    yield from class_lines("zoo.contrib.datatrove.Embedder", datatrove.Embedder)
    yield from class_lines("zoo.contrib.mteb.Encoder", mteb.Encoder)
    for function in (lm_eval.register, lm_eval.harness_model):
        yield f"zoo.contrib.lm_eval.{function.__name__}{signature(function)}"
    yield from class_lines("zoo.testing.FamilyTests", FamilyTests)
    yield from class_lines("zoo.testing.ReferenceTests", ReferenceTests, until=FamilyTests)


def definitions(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield name and statement of the public classes, functions, fields and constants."""
    for node in body:
        match node:
            case ast.ClassDef() | ast.FunctionDef():
                name = node.name
            case ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]):
                pass
            case _:
                continue
        if not name.startswith("_"):
            yield name, node


def source_lines(name: str, node: ast.stmt) -> Iterator[str]:
    """Yield a line for a definition, with the names of parameters, and for each of its members."""
    if isinstance(node, ast.FunctionDef):
        parameters = [part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)]
        yield f"{name}({', '.join(parameters)})"
    else:
        yield name
    for member, statement in definitions(node.body if isinstance(node, ast.ClassDef) else []):
        yield from source_lines(f"{name}.{member}", statement)


def imports(folder: Path) -> set[tuple[str, str]]:
    """Return module and name of all that the sources under a directory import from ``zoo``."""
    names = set()
    for path in folder.rglob("*.py"):
        code = path.read_text("utf-8")
        if "from zoo." not in code:
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zoo."):
                names |= {(str(node.module), alias.name) for alias in node.names}
    return names


def package_lines() -> Iterator[str]:
    """Yield a line for each class and function that plugins are built from, and its members.

    The plugins of ``examples`` may import from all packages.
    """
    built_in, examples = imports(BUILT_IN), imports(EXAMPLES)
    names = {(module.split(".")[1], name) for module, name in built_in | examples}
    packages = {module.split(".")[1] for module, _ in examples}
    for package in sorted(packages | {*PACKAGES}):
        for path in sorted((ROOT / "zoo" / package).rglob("*.py")):
            module = path.parent if path.name == "__init__.py" else path.with_suffix("")
            dotted = ".".join(module.relative_to(ROOT).parts)
            for name, node in definitions(ast.parse(path.read_text("utf-8")).body):
                if (package, name) in names:
                    yield from source_lines(f"{dotted}.{name}", node)


SNAPSHOTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "commands": option_lines,
    "plugins": package_lines,
    "python": python_lines,
}


def main() -> None:
    for name, lines in SNAPSHOTS.items():
        (FOLDER / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines()), "utf-8")


if __name__ == "__main__":
    main()
