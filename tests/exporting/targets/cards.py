"""Snippets of model cards, and the programs that run them.

The runtimes run in this process. Transformers.js, node-llama-cpp and optimum are installed by tests
that are marked ``long``: the first two by npm, the third into an environment of its own, as
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import warm
from tools.card_in_node import LOCAL, PACKAGE, install

NODE = shutil.which("node")
SNIPPET = re.compile(r"With ([\w. -]+):\n\n```(\w+)\n(.*?)```", re.DOTALL)
PACKAGES = (
    "optimum-onnx==0.1.0",
    "optimum-intel==2.0.0",
    "optimum==2.1.0",
    "transformers==4.57.6",
    "tokenizers==0.22.2",
    "huggingface-hub==0.36.2",
    "sentence-transformers==5.7.0",
)
# Prints the variables of a snippet that have these names, as JSON.
REPORT = """
import json
values = globals()
names = [name for name in {names} if name in values]
print(json.dumps({{name: values[name].tolist() for name in names}}))
"""


def snippets(export: Path) -> dict[str, str]:
    """Return the snippet of each program, with the directory in place of a repository."""
    text = (export / "README.md").read_text("utf-8")
    programs = {}
    for program, _, code in SNIPPET.findall(text):
        code = code.replace('snapshot_download("organisation/name")', repr(str(export)))
        programs[program] = code.replace("organisation/name", str(export))
    return programs


def zoo_results(export: Path, *, short: bool = False) -> list[dict[str, Any]]:
    """Return the results of the card's commands; ``short``: of those with ``--dim``."""
    rows = []
    for line in snippets(export)["zoo"].splitlines():
        if ("--dim" in line) is not short:
            continue
        done = warm.zoo(*shlex.split(line.removeprefix("$ zoo ")))
        assert done.returncode == 0, done.stderr
        rows += [json.loads(row) for row in done.stdout.splitlines()]
    return rows


def zoo_embeddings(export: Path, *, short: bool = False) -> np.ndarray:
    """Return the vectors of the card's commands, one a row."""
    return np.array([row["embedding"] for row in zoo_results(export, short=short)])


def assert_equal(vectors: Any, export: Path, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(np.array(vectors), zoo_embeddings(export), rtol=0, atol=atol)


def in_process(code: str) -> tuple[dict[str, Any], str]:
    """Return the variables of a snippet in Python, and what it prints."""
    scope: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "card", "exec"), scope)
    assert printed.getvalue().strip()
    return scope, printed.getvalue()


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Transformers.js."""
    return node_folder(tmp_path_factory, PACKAGE)


def node_folder(factory: pytest.TempPathFactory, package: str) -> Path:
    """Return a folder with a package of npm."""
    folder = factory.mktemp("javascript")
    if NODE is None or shutil.which("npm") is None:
        pytest.skip("Node.js and npm are not installed")
    try:
        install(folder, package)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"npm does not install {package}: {error}")
    return folder


@pytest.fixture(scope="session")
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
    """Return what a snippet of Transformers.js logs."""
    code = code.replace(str(export), export.name)
    return run_node(LOCAL.format(package=PACKAGE, folder=export.parent) + code, folder)


def run_node(code: str, folder: Path) -> list[Any]:
    """Return the values that JavaScript logs."""
    code = re.sub(r"console\.log\((.*)\);", r"console.log(JSON.stringify(\1));", code)
    module = folder / "snippet.mjs"
    module.write_text(code, "utf-8")
    done = subprocess.run([str(NODE), module], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] in '["{']


def in_old_python(code: str, python: Path, names: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
    """Return the arrays of a snippet by the names of their variables, and what it prints."""
    command = [str(python), "-c", code + REPORT.format(names=list(names))]
    environment = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *lines, arrays = done.stdout.splitlines()
    return json.loads(arrays), "\n".join(lines)
