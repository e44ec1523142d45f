"""Files, folders and functions that ``docs/architecture.md`` mentions exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PATHS = sorted(set(re.findall(r"`((?:zoo|plugins|converters|tests|docs)/[\w./-]+)`", PAGE)))
NAMED = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) in\s+`([\w./-]+\.py)`", PAGE)
FUNCTIONS = sorted({(name, path) for names, path in NAMED for name in re.findall(r"[\w.]+", names)})


def test_the_page_names_functions() -> None:
    assert len(FUNCTIONS) > 40
    assert len(PAGE.split()) < 2000, "the page is to be read in one sitting"


@pytest.mark.parametrize("path", PATHS)
def test_paths_exist(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("name", "path"), [pair for pair in FUNCTIONS if pair[0] != "and"])
def test_functions_are_defined_there(name: str, path: str) -> None:
    scope: ast.AST = ast.parse((ROOT / path).read_text("utf-8"))
    for part in name.split("."):
        nodes = [node for node in ast.walk(scope) if part in _defined(node)]
        assert nodes, f"{path} does not define {name}"
        scope = nodes[0]


def _defined(node: ast.AST) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [node.name] if isinstance(node, ast.ClassDef | ast.FunctionDef) else []
