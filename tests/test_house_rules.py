"""Rules about names, imports and tests, checked on the source."""

import ast
import re
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUGINS = sorted(path for path in (ROOT / "plugins").iterdir() if path.name.startswith("zoo_"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
CORE = sorted([*(ROOT / "zoo").rglob("*.py"), *(ROOT / "converters").rglob("*.py")])


def own_families() -> list[str]:
    points = metadata.entry_points(group="zoo")
    return [point.name for point in points if point.name != "converters"]


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    froms = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names | froms}


@pytest.mark.parametrize("path", CORE, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_core_names_no_family(path: Path) -> None:
    planned = ["bert", "roberta", "albert", "distilbert", "electra", "deberta", "gpt", "t5", "elmo"]
    words = "|".join({*planned, *own_families()})
    # file names of sentence-transformers and the Hub may contain family names
    text = path.read_text("utf-8").replace("sentence_bert_config.json", "")
    names = re.findall(rf"(?i)(?<![a-z])(?:{words})(?![a-z])", text)
    assert not names, f"{path} names {sorted(set(names))}"


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: p.name)
def test_plugins_do_not_import_each_other(plugin: Path) -> None:
    others = {path.name for path in PLUGINS} - {plugin.name}
    for path in plugin.rglob("*.py"):
        assert not imported(path) & others, path


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: p.name)
def test_every_family_has_the_same_files(plugin: Path) -> None:
    names = {path.name for path in plugin.glob("*.py")}
    assert names >= {"__init__.py", "config.py", "model.py", "weights.py"}, plugin


@pytest.mark.parametrize(
    "path", [*CORE, *(p for d in PLUGINS for p in d.rglob("*.py"))], ids=lambda p: p.name
)
def test_the_test_oracle_is_not_imported_at_run_time(path: Path) -> None:
    assert "transformers" not in imported(path)


def called(node: ast.expr) -> str:
    """Return the name of the function that an expression, perhaps negated, calls."""
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


@pytest.mark.parametrize("path", TESTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_assertions_about_collections_name_the_element(path: Path) -> None:
    """``assert [x for x in xs if not good(x)] == []`` shows x, ``assert all(...)`` does not."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    tests = [node.test for node in nodes if isinstance(node, ast.Assert)]
    terms = [term for t in tests for term in (t.values if isinstance(t, ast.BoolOp) else [t])]
    assert [ast.unparse(term) for term in terms if called(term) in ("all", "any")] == []
