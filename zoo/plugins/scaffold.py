"""Writing of a new plugin's project from the templates of the package.

A template is a file of the project with ``.txt`` added to its name, in which words between ``@``
stand for the names of the plugin.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from zoo.errors import UsageError
from zoo.io.output.atomic import atomic_directory
from zoo.plugins.discovery import all_entry_points

# kind -> head of the example in its registry, parameters of its size ``base``
KINDS: Mapping[str, tuple[str, int]] = {
    "encoder": ("masked-lm", 109_512_762),
    "decoder": ("causal-lm", 123_653_376),
}
MODULES = ("__init__.py", "config.py", "model.py", "recipe.py", "weights.py")
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


@dataclass(frozen=True)
class PluginNames:
    """Names of a new plugin.

    Attributes:
        name: name of the family and of the entry point, such as ``my-model``.
    """

    name: str

    @property
    def module(self) -> str:
        """The name as a Python identifier: ``my_model``."""
        return self.name.replace("-", "_")

    @property
    def package(self) -> str:
        """Import name of the package: ``zoo_my_model``."""
        return f"zoo_{self.module}"

    @property
    def distribution(self) -> str:
        """Name of the distribution: ``zoo-my-model``."""
        return f"zoo-{self.name.replace('_', '-')}"

    @property
    def class_name(self) -> str:
        """Name of the family's class: ``MyModel``."""
        return "".join(part.capitalize() for part in self.module.split("_"))


def write_project(name: str, kind: str, directory: Path) -> list[str]:
    """Write a project, and return the paths of its files.

    Args:
        name: name of the family.
        kind: one of ``KINDS``.
        directory: directory to create.

    Raises:
        UsageError: the name is taken or cannot be the name of a package, or the directory exists.
    """
    if not _NAME.fullmatch(name) or len(name) > 60:
        raise UsageError(
            f"{name!r} cannot be the name of a plugin", "use lower-case letters, digits and hyphens"
        )
    if name in all_entry_points():
        raise UsageError(f"a plugin called {name} is installed already")
    files = render(PluginNames(name), kind)
    with atomic_directory(directory) as staging:
        for path, text in files.items():
            (staging / path).parent.mkdir(parents=True, exist_ok=True)
            (staging / path).write_text(text, encoding="utf-8")
    return list(files)


def render(names: PluginNames, kind: str) -> dict[str, str]:
    """Return path -> contents of the files of a project."""
    head, parameters = KINDS[kind]
    values = {
        "name": names.name,
        "module": names.module,
        "package": names.package,
        "distribution": names.distribution,
        "Name": names.class_name,
        "head": head,
        "parameters": f"{parameters:_}",
    }
    sources = {
        "pyproject.toml": "common/pyproject.toml",
        "README.md": "common/README.md",
        ".github/workflows/test.yml": "common/ci.yml",
        f"tests/test_{names.module}.py": "common/test_family.py",
        f"{names.package}/registry.yaml": "common/registry.yaml",
        **{f"{names.package}/{module}": f"{kind}/{module}" for module in MODULES},
    }
    root = resources.files("zoo.plugins") / "templates"
    return {
        path: _fill((root / f"{source}.txt").read_text("utf-8"), values)
        for path, source in sources.items()
    }


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the words between ``@`` that have a value."""
    pattern = re.compile(f"@({'|'.join(values)})@")
    return pattern.sub(lambda match: values[match[1]], text)
