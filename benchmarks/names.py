"""Uses of former names of modules, classes and functions, and of names without a meaning.

    python -m benchmarks.names

``names.tsv`` has a line for each: the present name of the module, the former name in it (``Class``,
``Class.method``, ``function:parameter``) and its replacement; or, without a former name, a former
module and the module that replaced it. Many names are ordinary words, so a name counts as used only
if its module defines it again, or if it is imported from there. ``VAGUE`` has words that name no
variable, parameter, attribute or function, since they do not tell what it holds; those of ``SIDES``
do so where results are compared with another program's, in tests, benchmarks and examples, and
nowhere else. The uses are printed, and the exit code is 1 if there are any.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("zoo", "plugins", "converters", "docs", "examples", "tests", "benchmarks")
PACKAGES = (ROOT, ROOT / "plugins", ROOT / "converters", *sorted(ROOT.glob("examples/plugins/*")))
VAGUE = {
    *("asked", "each", "firsts", "found", "fresh", "given", "job", "kept", "learner", "lesson"),
    *("one", "own", "places", "ranks", "said", "told", "where"),
}
SIDES = {"ours", "theirs"}
PACKAGED = ("zoo", "plugins", "converters")
Names = dict[tuple[str, str], str]


def read_names() -> tuple[Names, dict[str, str]]:
    """Return (module, former name) -> name, and former module -> module."""
    lines = (ROOT / "benchmarks" / "names.tsv").read_text("utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    names = {(module, former): name for module, former, name in rows if former}
    return names, {module: name for module, former, name in rows if not former}


def module_file(module: str) -> Path | None:
    """Return the file of a module of the project, if there is one."""
    for package in PACKAGES:
        path = package.joinpath(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.exists():
                return file
    return None


def definitions(node: ast.AST, prefix: str = "") -> Iterator[str]:
    """Yield the names that a module defines, with attributes of classes and function parameters."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield prefix + child.name
            yield from definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            yield prefix + child.name
            arguments = child.args
            for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                yield f"{prefix}{child.name}:{parameter.arg}"
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            names = [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            yield from (prefix + name.id for name in names)


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for every name that is imported, and (module, "") for every module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, ""
            for alias in node.names:
                yield node.module, alias.name
                yield f"{node.module}.{alias.name}", ""
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def uses() -> Iterator[str]:
    """Yield a line of text for each use of a former name."""
    names, modules = read_names()
    for module in sorted({module for module, _ in names}):
        file = module_file(module)
        defined = set(definitions(ast.parse(file.read_text("utf-8")))) if file else set()
        for former in sorted(former for m, former in names if m == module and former in defined):
            yield f"{module} defines {former}, which is {names[module, former]}"
    # a package may have the name of a module that it replaced
    gone = {m for m in modules if (file := module_file(m)) is None or file.stem == "__init__"}
    yield from (
        f"{module} is there, which became {modules[module]}"
        for module in sorted(modules.keys() - gone - set(modules.values()))
    )
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for module, name in imports(ast.parse(path.read_text("utf-8"))):
                if module in gone and not name and module_file(module) is None:
                    yield f"{path.relative_to(ROOT)} imports {module}, now {modules[module]}"
                elif (module, name) in names:
                    yield f"{path.relative_to(ROOT)} imports {name} from {module}"


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, name) for every name that is bound, except by an import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def vague_names() -> Iterator[str]:
    """Yield a line of text for each name that is bound and does not tell what it holds."""
    for folder in SOURCES:
        vague = VAGUE | SIDES if folder in PACKAGED else VAGUE
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, name in bound_names(ast.parse(path.read_text("utf-8"))):
                if name in vague:
                    yield f"{path.relative_to(ROOT)}:{line}: {name} does not tell what it holds"


def main() -> int:
    former, vague = list(uses()), list(vague_names())
    print("\n".join([*former, *vague]), end="\n" if former or vague else "")
    print(f"{len(former)} uses of former names, {len(vague)} vague names")
    return min(len(former) + len(vague), 1)


if __name__ == "__main__":
    sys.exit(main())
