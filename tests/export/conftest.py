from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.inference.making import make_checkpoint
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.export.export import export_onnx
from zoo.export.report import ExportReport

Exported = tuple[Checkpoint, Checkpoint, ExportReport]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    """Return a cached function from a head to a checkpoint, its export and the report."""

    @cache
    def export(head: str) -> Exported:
        folder: Path = tmp_path_factory.mktemp(head)
        checkpoint = make_checkpoint(folder / "model", head, num_layers=1)
        report = export_onnx(checkpoint, folder / "graph")
        return checkpoint, load_checkpoint(folder / "graph"), report

    return export
