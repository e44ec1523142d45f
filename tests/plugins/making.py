"""Distributions of plugins, and environments that install them."""

import base64
import hashlib
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests import warm

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
UV = Path(sysconfig.get_path("scripts"), "uv")
LOGGER = """
from zoo.plugins.hookspecs import hookimpl
from zoo.plugins.logger import Logger


class Mine(Logger):
    name = "mine"


@hookimpl
def zoo_loggers():
    return [Mine]
"""


def make_wheel(folder: Path, source: str, version: str = "1.2", entry: str = "[zoo.api1]") -> Path:
    """Write a wheel of the distribution ``zoo-mine`` with the module ``zoo_mine``."""
    info = f"zoo_mine-{version}.dist-info"
    files = {
        "zoo_mine.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: zoo-mine\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"{entry}\nmine = zoo_mine\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        for name, text in files.items()
    }
    record = [f"{name},sha256={digests[name]},{len(files[name])}" for name in files]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    path = folder / f"zoo_mine-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


class Environment:
    """A virtual environment that sees the packages of this one; pip installs into its own.

    Args:
        folder: the environment's directory.
        by_uv: let uv create it, without a network, and find uv in it.
    """

    def __init__(self, folder: Path, *, by_uv: bool = False) -> None:
        self.folder, self.by_uv = folder, by_uv
        if by_uv:
            options = ("--quiet", "--offline", "--python", sys.executable)
            subprocess.run([UV, "venv", *options, folder], check=True)
        else:
            venv.create(folder, with_pip=False)
        (site,) = folder.glob("lib/python*/site-packages")
        packages = sysconfig.get_path("purelib")
        (site / "outer.pth").write_text(f"import site; site.addsitedir({packages!r})\n")

    def start(self, *arguments: object, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        """Start ``zoo plugins`` in a session of its own."""
        environment = {
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this as: without isolation
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "",
        }
        if self.by_uv:
            environment |= {"UV_NO_INDEX": "1", "UV_OFFLINE": "1", "UV_NO_BUILD_ISOLATION": "1"}
            environment |= {"UV_CACHE_DIR": str(self.folder / "cache")}
            environment |= {"PATH": os.pathsep.join([str(UV.parent), os.environ["PATH"]])}
        return subprocess.Popen(
            [self.folder / "bin" / "python", "-m", "zoo", "plugins", *map(str, arguments)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            cwd=self.folder,
            start_new_session=True,
        )

    def zoo(
        self, *arguments: object, stdin: int = subprocess.DEVNULL
    ) -> "subprocess.CompletedProcess[str]":
        """Run ``zoo plugins``."""
        process = self.start(*arguments, stdin=stdin)
        output = process.communicate()
        return subprocess.CompletedProcess([*map(str, arguments)], process.returncode, *output)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


HOOKIMPL = "from zoo.plugins.hookspecs import hookimpl\n"
HEALTHY = """
from zoo.plugins.hookspecs import hookimpl
from zoo_bert import Bert

class Mine(Bert):
    name = "{name}"
    model_types = ("{name}",)

@hookimpl
def zoo_families():
    return [Mine()]
"""


def distribution(folder: Path, name: str, entry: str, module: str, source: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[zoo.api1]\n{entry} = {module}\n")
    (folder / f"{module}.py").write_text(source)


def zoo(folder: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return warm.zoo(*arguments, cwd=folder, PYTHONPATH=str(folder), **more)
