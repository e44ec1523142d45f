"""llama.cpp in a process of its own, through node-llama-cpp or llama-cpp-python."""

import base64
import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.errors import VerificationError
from zoo.inference.threads import environment_threads
from zoo.io.cores import usable_cores
from zoo.io.paths import home
from zoo.io.scratch import scratch_file
from zoo.version import package_version

NODE = "node-llama-cpp"
PYTHON = "llama-cpp-python"
MODULE = Path(NODE) / "dist" / "index.js"
INSTALL = (
    "npm install node-llama-cpp, in the working directory or with --prefix $ZOO_HOME, or "
    "pip install llama-cpp-python"
)


class LlamaProgram(NamedTuple):
    """What runs llama.cpp: an interpreter, a script of this folder, and arguments of the script."""

    package: str
    interpreter: tuple[str, ...]
    script: str
    arguments: tuple[str, ...] = ()


def llama_problem() -> str | None:
    """Return why llama.cpp cannot run here; ``None`` if it can."""
    if program() is not None:
        return None
    if library() is not None:
        return f"{NODE} is installed, and Node.js is not"
    return f"neither {NODE} nor {PYTHON} is installed"


def program() -> LlamaProgram | None:
    """Return what runs llama.cpp here; ``None`` if nothing is installed."""
    module = library()
    if module is not None and shutil.which("node") is not None:
        return LlamaProgram(NODE, ("node",), "llama.mjs", (str(module),))
    if importlib.util.find_spec("llama_cpp") is not None:
        # -P: modules in the folder of the script have short names
        return LlamaProgram(PYTHON, (sys.executable, "-P"), "binding.py")
    return None


def llama_version() -> dict[str, str]:
    """Return the package that runs llama.cpp -> its version; empty if there is none."""
    installed = program()
    if installed is None:
        return {}
    version = package_version(installed.package)
    if installed.package == NODE:
        package_file = Path(installed.arguments[0]).parents[1] / "package.json"
        with suppress(OSError, ValueError, KeyError, TypeError):
            version = str(json.loads(package_file.read_text("utf-8"))["version"])
    return {installed.package: version or "unknown"}


def library() -> Path | None:
    """Return the module of node-llama-cpp, as Node.js would find it, or in ``$ZOO_HOME``."""
    for folder in _folders():
        if (folder / MODULE).is_file():
            return folder / MODULE
    return None


def _folders() -> Iterator[Path]:
    working = Path.cwd()
    for folder in (working, *working.parents):
        yield folder / "node_modules"
    for entry in os.environ.get("NODE_PATH", "").split(os.pathsep):
        if entry:
            yield Path(entry)
    yield home() / "node_modules"
    if (root := _global_folder()) is not None:
        yield root


@functools.cache
def _global_folder() -> Path | None:
    """Return the folder of packages that ``npm install -g`` writes to."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [npm, "root", "-g"], capture_output=True, text=True, timeout=20, check=True
        )
        return Path(done.stdout.strip())
    return None


class LlamaCpp:
    """A GGUF file in llama.cpp. The process ends with this object, or with ``close``.

    Args:
        threads: number of CPU threads; by default ``$OMP_NUM_THREADS``, or all cores.
    """

    def __init__(
        self, file: Path, *, max_tokens: int, threads: int | None = None, embeds: bool
    ) -> None:
        self._file = file
        # one more: node-llama-cpp keeps the last cell of a context free
        settings = {
            "contextSize": max_tokens + 1,
            "threads": threads or environment_threads() or usable_cores(),
            "embeds": embeds,
        }
        self._errors = scratch_file()
        installed = program()
        assert installed is not None, "the runtime is installed"
        arguments = [*installed.arguments, str(file), json.dumps(settings, allow_nan=False)]
        with resources.as_file(resources.files(__package__) / installed.script) as script:
            self._process = subprocess.Popen(
                [*installed.interpreter, str(script), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                encoding="utf-8",
            )
            self._read()

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts, with those that llama.cpp adds."""
        ids: list[list[int]] = self._ask({"texts": list(texts)})
        return ids

    def run(
        self, rows: Sequence[Sequence[int]], wanted: Literal["embedding", "logits"]
    ) -> list[NDArray[np.float32]]:
        """Return the embedding of each row of token ids, or the logits, (tokens, vocabulary)."""
        answers = self._ask({"rows": [list(map(int, row)) for row in rows], "wanted": wanted})
        if wanted == "embedding":
            return [_decoded(text) for text in answers]
        return [np.stack([_decoded(text) for text in row]) for row in answers]

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._errors.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):  # the answer says why
            self._process.stdin.write(json.dumps(request, allow_nan=False) + "\n")
            self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise VerificationError(f"{self._file}: llama.cpp fails: {answer['error']:.300}")
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        with suppress(ValueError):
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        # Node.js shows the statement that throws.
        lines = [line for line in lines if not line.lstrip().startswith("throw ")]
        reasons = [line for line in lines if "rror" in line or "failed" in line] or lines
        reason = reasons[0].strip() if reasons else "its process ended"
        raise VerificationError(
            f"{self._file}: llama.cpp refuses it: {reason:.300}", "export it again"
        )


def _decoded(text: str) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(text), "<f4")
