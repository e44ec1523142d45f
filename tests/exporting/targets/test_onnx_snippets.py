"""The snippets of the model card of an ONNX sentence encoder print the vectors of ``zoo run``.

ONNX Runtime runs in this process. Transformers.js and optimum are installed by tests that are
marked ``long``: the first by npm (500 MB), the second into an environment of its own, as
optimum-onnx 0.1.0 requires transformers below 4.58 and sentence-transformers below 6.
"""

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from huggingface_hub import ModelCard

from tests import warm
from tests.checkpoints import Make, hub_checkpoint
from tests.exporting.making import export_onnx
from tests.inference.conftest import converted, packaged
from tests.tasks.sentence_embedding.making import save
from tools.card_in_node import LOCAL, PACKAGE, install
from zoo.exporting.quantization.quantize import Quantization
from zoo.exporting.quantization.variants import QuantizationPlan

__all__ = ["hub_checkpoint", "packaged"]
ROOT = Path(__file__).parents[3]
NODE = shutil.which("node")
SNIPPET = re.compile(r"With ([\w. -]+):\n\n```(\w+)\n(.*?)```", re.DOTALL)
PROMPTS = {"query": "b a ", "passage": "d c "}
# name -> mode, whether embeddings are normalized, settings of sentence-transformers
ENCODERS: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "mean": ("mean", False, {}),
    "mean, normalized": ("mean", True, {}),
    "cls, normalized": ("cls", True, {}),
    "last token": ("lasttoken", False, {}),
    "prompts": ("mean", True, {"prompts": PROMPTS}),
    "default prompt": ("cls", False, {"prompts": PROMPTS, "default_prompt_name": "passage"}),
    "cut": ("mean", False, {"truncate_dim": 8}),
    "matryoshka": ("mean", True, {}),
}
PACKAGES = (
    "optimum-onnx==0.1.0",
    "optimum==2.1.0",
    "transformers==4.57.6",
    "tokenizers==0.22.2",
    "huggingface-hub==0.36.2",
    "sentence-transformers==5.7.0",
)
REPORT = """
import json
values = globals()
names = [name for name in ("embeddings", "queries", "documents", "short") if name in values]
print(json.dumps({name: values[name].tolist() for name in names}))
"""
ALL = ["zoo", "Transformers.js", "sentence-transformers", "optimum", "ONNX Runtime"]


def encoder(name: str, make: Make, folder: Path, **options: Any) -> Path:
    """Write the export of a sentence encoder."""
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling

    mode, normalized, settings = ENCODERS[name]
    modules: list[Any] = [Pooling(32, mode)]
    if normalized:
        modules.append(Normalize())
    save(make("BertModel", num_hidden_layers=1), folder / "hub", modules, **settings)
    checkpoint = converted(folder / "hub", folder / "model")
    if name == "matryoshka":
        training = {"task_args": {"matryoshka": [8, 32]}}
        checkpoint = replace(
            checkpoint, manifest=msgspec.structs.replace(checkpoint.manifest, training=training)
        )
    export_onnx(checkpoint, folder / "export", **options)
    return folder / "export"


def snippets(export: Path) -> dict[str, str]:
    """Return the snippet of each program, with the directory in place of a repository."""
    text = (export / "README.md").read_text("utf-8")
    found = {}
    for program, _, code in SNIPPET.findall(text):
        code = code.replace('snapshot_download("organisation/name")', repr(str(export)))
        found[program] = code.replace("organisation/name", str(export))
    return found


def expected(export: Path, *, short: bool = False) -> np.ndarray:
    """Return the vectors of the commands of the card, one a row; ``short``: those of ``--dim``."""
    rows = []
    for line in snippets(export)["zoo"].splitlines():
        if ("--dim" in line) is not short:
            continue
        done = warm.zoo(*shlex.split(line.removeprefix("$ zoo ")))
        assert done.returncode == 0, done.stderr
        rows += [json.loads(row)["embedding"] for row in done.stdout.splitlines()]
    return np.array(rows)


def assert_equal(vectors: Any, export: Path, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(np.array(vectors), expected(export), rtol=0, atol=atol)


def in_process(code: str) -> Any:
    """Return the embeddings of a snippet in Python."""
    scope: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "card", "exec"), scope)
    assert printed.getvalue().strip()
    return scope["embeddings"]


@pytest.mark.parametrize("name", ENCODERS)
def test_onnx_runtime_computes_the_embeddings(
    name: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    export = encoder(name, hub_checkpoint, tmp_path)
    found = snippets(export)
    assert list(found) == ALL
    assert_equal(in_process(found["ONNX Runtime"]), export)
    for program in ("sentence-transformers", "optimum"):
        compile(found[program], program, "exec")
    settings = json.loads((export / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 8


def test_onnx_runtime_reads_a_pooled_graph(hub_checkpoint: Make, tmp_path: Path) -> None:
    export = encoder("prompts", hub_checkpoint, tmp_path, pooled=True)
    code = snippets(export)["ONNX Runtime"]
    assert "sentence_embedding" in code
    assert_equal(in_process(code), export)


def test_the_metadata_finds_an_encoder(hub_checkpoint: Make, tmp_path: Path) -> None:
    export = encoder("matryoshka", hub_checkpoint, tmp_path)
    data = ModelCard.load(export / "README.md").data
    assert data.tags == [
        "onnx",
        "sentence-transformers",
        "sentence-similarity",
        "feature-extraction",
    ]
    assert data.pipeline_tag == "sentence-similarity"


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Transformers.js."""
    folder = tmp_path_factory.mktemp("javascript")
    if NODE is None or shutil.which("npm") is None:
        pytest.skip("Node.js and npm are not installed")
    try:
        install(folder)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"npm installs no Transformers.js: {error}")
    return folder


@pytest.fixture(scope="module")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with optimum and the releases that it requires; others are those of here."""
    folder = tmp_path_factory.mktemp("python")
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    try:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "shared.pth").write_text("\n".join(p for p in sys.path if "site-packages" in p))
        command = [*pip, "--no-deps", "--ignore-installed", *PACKAGES]
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"pip installs no optimum: {error.stderr}")
    return python


def in_node(code: str, export: Path, folder: Path) -> list[Any]:
    """Return what a snippet logs."""
    code = code.replace(str(export), export.name)
    code = re.sub(r"console\.log\((.*)\);", r"console.log(JSON.stringify(\1));", code)
    module = folder / "snippet.mjs"
    module.write_text(LOCAL.format(package=PACKAGE, folder=export.parent) + code, "utf-8")
    done = subprocess.run([str(NODE), module], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def in_old_python(code: str, python: Path) -> dict[str, Any]:
    """Return the embeddings of a snippet."""
    command = [str(python), "-c", code + REPORT]
    environment = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", ENCODERS)
def test_transformers_js_computes_the_embeddings(
    name: str, hub_checkpoint: Make, tmp_path: Path, javascript: Path
) -> None:
    export = encoder(name, hub_checkpoint, tmp_path)
    logged = in_node(snippets(export)["Transformers.js"], export, javascript)
    if name == "matryoshka":
        short = logged.pop()
        np.testing.assert_allclose(short, expected(export, short=True), rtol=0, atol=1e-5)
    assert_equal(np.concatenate(logged), export)


@pytest.mark.long
def test_transformers_js_reads_a_pooled_graph(
    hub_checkpoint: Make, tmp_path: Path, javascript: Path
) -> None:
    export = encoder("prompts", hub_checkpoint, tmp_path, pooled=True)
    code = snippets(export)["Transformers.js"]
    assert "sentence_embedding" in code
    assert_equal(in_node(code, export, javascript)[0], export)


@pytest.mark.long
@pytest.mark.parametrize("name", ENCODERS)
def test_optimum_computes_the_embeddings(
    name: str, hub_checkpoint: Make, tmp_path: Path, old_python: Path
) -> None:
    export = encoder(name, hub_checkpoint, tmp_path)
    found = snippets(export)
    assert_equal(in_old_python(found["optimum"], old_python)["embeddings"], export)
    vectors = in_old_python(found["sentence-transformers"], old_python)
    if name == "matryoshka":
        short = expected(export, short=True)
        np.testing.assert_allclose(vectors["short"], short, rtol=0, atol=1e-5)
    if "queries" in vectors:
        assert_equal(vectors["queries"] + vectors["documents"][:1], export)
    else:
        assert_equal(vectors["embeddings"], export)


@pytest.mark.long
def test_the_snippets_open_the_precision_that_was_asked_for(
    packaged: Path, tmp_path: Path, javascript: Path, old_python: Path
) -> None:
    """The real MiniLM in int8, whose activations have a scale that depends on the whole batch.

    Kernels of other releases of ONNX Runtime also round differently.
    """
    export = tmp_path / "export"
    plan = QuantizationPlan(methods=(Quantization("int8"),))
    export_onnx(converted(packaged, tmp_path / "model"), export, quantization=plan)
    found = snippets(export)
    assert [name for name in ALL[2:] if "quantized" not in found[name]] == []
    assert '{ dtype: "q8" }' in found["Transformers.js"] and "--dtype int8" in found["zoo"]
    assert_equal(in_process(found["ONNX Runtime"]), export, 2e-3)
    assert_equal(in_node(found["Transformers.js"], export, javascript)[0], export, 2e-2)
    for program in ("optimum", "sentence-transformers"):
        assert_equal(in_old_python(found[program], old_python)["embeddings"], export, 2e-2)
