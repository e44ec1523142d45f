"""Files, folders and functions that ``docs/architecture.md`` mentions exist."""

import ast
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from zoo.plugins import get_family

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PATHS = sorted(set(re.findall(r"`((?:zoo|plugins|converters|tests|docs)/[\w./-]+)`", PAGE)))
NAMED = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) in\s+`([\w./-]+\.py)`", PAGE)
FUNCTIONS = sorted({(name, path) for names, path in NAMED for name in re.findall(r"[\w.]+", names)})


def test_the_page_names_functions() -> None:
    assert len(FUNCTIONS) > 40
    assert len(PAGE.split()) < 2400, "the page is to be read in one sitting"


def test_every_room_has_a_row() -> None:
    rooms = {f"zoo/{path.parent.name}" for path in (ROOT / "zoo").glob("*/__init__.py")}
    rows = re.findall(r"^\| `(zoo/\w+)` \| \S", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(rooms)


def test_paths_exist() -> None:
    assert len(PATHS) > 50
    assert [path for path in PATHS if not (ROOT / path).exists()] == []


def test_functions_are_defined_there() -> None:
    for name, path in FUNCTIONS:
        if name == "and":
            continue
        scope: ast.AST = ast.parse((ROOT / path).read_text("utf-8"))
        for part in name.split("."):
            nodes = [node for node in ast.walk(scope) if part in _defined(node)]
            assert nodes, f"{path} does not define {name}"
            scope = nodes[0]


@pytest.mark.by_default("masked-lm-False", "none-True")
@pytest.mark.parametrize(
    ("head", "training"),
    [("masked-lm", False), ("masked-lm", True), ("pretraining", True), ("none", True)],
)
def test_a_forward_pass_runs_in_the_files_that_are_listed(head: str, training: bool) -> None:
    (step,) = re.findall(r"^5\. the forward pass.*", PAGE, re.MULTILINE)
    files, functions = (re.findall(r"`([\w/]+\.py)`", part) for part in step.split(". They call"))
    assert len(set(files)) == 4 and len(set(functions)) == 11
    config = get_family("bert").sizes()["tiny"]
    model: Any = get_family("bert").model(config, head).train(training)
    built = files[0]  # its functions run before the forward pass
    other_mode = "row_packing.py" if training else "attention_blocks.py"
    unused = {f"zoo/nn/kernels/{other_mode}"}
    if head == "none":
        unused |= {"zoo/nn/kernels/onednn_linear.py"}  # of output embeddings
    executed = executed_files(model, torch.tensor([[2, 5, 6, 3]]), torch.ones(1, 4).long())
    assert executed == {*files, *functions} - {built} - unused


def executed_files(model: Any, *inputs: torch.Tensor) -> set[str]:
    """Return the files of the project of which functions run in a forward pass."""
    executed = set[str]()

    def record(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and ROOT in path.parents and "site-packages" not in path.parts:
            executed.add(path.relative_to(ROOT).as_posix())

    sys.setprofile(record)
    try:
        model(*inputs)
    finally:
        sys.setprofile(None)
    return executed - {Path(__file__).relative_to(ROOT).as_posix()}


def _defined(node: ast.AST) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return [node.name] if isinstance(node, ast.ClassDef | ast.FunctionDef) else []
