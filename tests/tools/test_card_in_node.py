"""The JavaScript of model cards."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.exporting.making import export_onnx
from tests.inference.making import make_checkpoint
from tools.card_in_node import snippet_of

NODE = shutil.which("node")


@pytest.mark.long
@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_the_snippet_of_an_export_parses(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", "sequence-classification", num_layers=1)
    export_onnx(checkpoint, tmp_path / "graph")
    snippet = snippet_of(tmp_path / "graph")
    assert 'pipeline("text-classification", "graph", { dtype: "fp32" })' in snippet
    module = tmp_path / "snippet.mjs"
    module.write_text(snippet, "utf-8")
    done = subprocess.run([str(NODE), "--check", module], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
