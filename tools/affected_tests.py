"""Test files of what changed, one per line: ``make check`` runs them in about two minutes.

    python -m tools.affected_tests [BASE]

What changed are files that differ from the commit BASE, by default the last one, and new files. A
test file is affected if it changed, mirrors a changed module, or imports one. Tests of the whole
repository, such as those of the documentation, are affected by the files that they read.

Some modules, such as ``zoo.errors``, are imported by hundreds of tests. Then those run that import
the fewest modules of the project, which test the changed one most directly. The number of the
others is printed to standard error; ``make test`` runs them.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# Files that a change anywhere may break, and that take seconds.
ALWAYS = ("tests/test_house_rules.py", "tests/test_architecture.py", "tests/test_api.py")
# Suffix of a changed file -> tests that read files of this kind.
BY_SUFFIX = {
    ".md": (
        "tests/documentation/test_documentation.py",
        "tests/documentation/test_documented_commands.py",
    ),
    ".toml": ("tests/test_packaging.py",),
}
# Folder of sources -> the folder of tests that mirrors it.
MIRRORS = {"zoo": "tests", "converters/zoo_converters": "tests/converters", "tools": "tests/tools"}
PROJECT = ("zoo", "tests", "tools", "benchmarks")  # its packages; those of plugins begin with zoo_
MOST = 30  # test files that run only because they import a module that changed


class AffectedTests(NamedTuple):
    """Names of test files: those to run, and those that import a changed module as well."""

    selected: list[str]
    omitted: list[str]


def main(arguments: list[str]) -> None:
    base = arguments[0] if arguments else "HEAD"
    tests = affected_tests(changed_files(base))
    print("\n".join(tests.selected))
    if tests.omitted:
        message = "more test files import what changed; `make test` runs them"
        print(f"{len(tests.omitted)} {message}", file=sys.stderr)


def changed_files(base: str) -> list[str]:
    """Return the files that differ from a commit, and those that git does not know yet."""
    tracked = _git("diff", "--name-only", base)
    new = _git("ls-files", "--others", "--exclude-standard")
    return sorted({*tracked, *new})


def affected_tests(changed: Iterable[str], root: Path = ROOT) -> AffectedTests:
    """Return the test files that a change may break."""
    changed = list(changed)
    modules = {module_name(name) for name in changed if name.endswith(".py")}
    tests = set(ALWAYS)
    for name in changed:
        tests.update(BY_SUFFIX.get(Path(name).suffix, ()))
        tests.update(mirroring_tests(name, root))
    importing: list[tuple[int, str]] = []  # number of modules that are imported, and name
    for path in (root / "tests").rglob("test_*.py"):
        name = path.relative_to(root).as_posix()
        if name in changed:
            tests.add(name)
            continue
        imported = imported_modules(path)
        if modules & imported:
            importing.append((sum(map(is_of_project, imported)), name))
    importing = [(count, name) for count, name in sorted(importing) if name not in tests]
    tests.update(name for _, name in importing[:MOST])
    selected = sorted(name for name in tests if (root / name).exists())
    return AffectedTests(selected, [name for _, name in importing[MOST:]])


def is_of_project(module: str) -> bool:
    """Return whether a module is one of this repository."""
    package = module.partition(".")[0]
    return package in PROJECT or package.startswith("zoo_")


def mirroring_tests(name: str, root: Path = ROOT) -> Iterator[str]:
    """Yield the test files that mirror a module.

    ``tests/io/test_json.py`` mirrors ``zoo/io/json.py``.
    """
    for sources, tests in MIRRORS.items():
        if not name.startswith(f"{sources}/") or not name.endswith(".py"):
            continue
        path = Path(tests, Path(name).relative_to(sources))
        folder = root / path.parent
        stem = path.parent.name if path.stem == "__init__" else path.stem
        for test in sorted(folder.glob(f"test_{stem}*.py")):
            yield test.relative_to(root).as_posix()


def module_name(name: str) -> str:
    """Return the dotted name of the module in a file."""
    path = Path(name)
    if path.parts[0] in ("plugins", "converters"):
        path = path.relative_to(path.parts[0])
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def imported_modules(path: Path) -> set[str]:
    """Return the names that a file imports, as modules and as attributes of modules."""
    modules = set[str]()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def _git(*arguments: str) -> list[str]:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    main(sys.argv[1:])
