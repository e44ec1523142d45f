"""A plugin's distribution, installed by pip into a directory of its own, and driven by commands.

Every command is a separate process that finds the plugin by its distribution's metadata.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import warm


class Installed:
    """Installation of a plugin in a separate directory, and working directories.

    Args:
        folder: directory of all files.
        project: the plugin's project.
    """

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder, self.source, self.site = folder, folder / "source", folder / "site"
        leftovers = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", ".*")
        shutil.copytree(project, self.source, ignore=leftovers)
        options = ("--quiet", "--python", sys.executable, "--no-index", "--no-deps")
        target = ("--no-build-isolation", "--target", self.site)
        self.python("uv", "pip", "install", *options, *target, self.source)  # faster than pip

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with the plugin on the path."""
        home = {"PYTHONPATH": str(self.site), "ZOO_HOME": str(self.folder / "home")}
        return {**home, "ZOO_STRICT_PLUGINS": "1", "OMP_NUM_THREADS": "1"}

    def python(self, module: str, *arguments: object) -> str:
        """Run a module with the plugin on the path, and return its output."""
        done = subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            cwd=self.folder,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def zoo(self, *arguments: object) -> dict[str, Any]:
        """Run a command, and return the JSON object that it prints."""
        done = warm.zoo(*arguments, "--json", cwd=self.folder, **self.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result
