"""Writing of a new plugin's project from the templates of the package."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from zoo.errors import UsageError
from zoo.io.output.atomic import atomic_directory
from zoo.plugins.discovery import all_entry_points
from zoo.plugins.registry import family_of_model_type


@dataclass(frozen=True)
class TemplateKind:
    """Parts of the shared files that differ between templates."""

    description: str
    base: str  # Base class of the family, ``module:class``.
    heads: str  # Function of that module that returns the heads.
    head: str  # Head of the example in the registry.
    parameters: int  # Number of parameters of the size ``base`` with that head.

    @property
    def imports(self) -> str:
        """The import lines of the base class and of the families' other parts, sorted."""
        module, _, name = self.base.partition(":")
        lines = (
            "from zoo.families.base import Family, Head",
            "from zoo.families.config import Config, ConfigMap",
            f"from {module} import {name}, {self.heads}",
        )
        return "\n".join(sorted(lines))


_ENCODER = ("zoo.families.encoder:WordPieceFamily", "encoder_heads", "masked-lm")
KINDS: Mapping[str, TemplateKind] = {
    "encoder": TemplateKind("a text encoder", *_ENCODER, 109_512_762),
    "decoder": TemplateKind(
        "a decoder", "zoo.families.causal:CausalFamily", "causal_heads", "causal-lm", 123_653_376
    ),
    "encoder-decoder": TemplateKind(
        "an encoder-decoder",
        "zoo.families.seq2seq:Seq2SeqFamily",
        "seq2seq_heads",
        "seq2seq-lm",
        224_758_144,
    ),
    "recurrent": TemplateKind("a recurrent text encoder", *_ENCODER, 22_226_234),
}
MODULES = ("__init__.py", "config.py", "model.py", "recipe.py", "registry.yaml", "weights.py")
# what a project has in place of a family -> modules of its package
PARTS = {
    "objective": ("__init__.py", "objective.py"),
    "task": ("__init__.py", "declaration.py", "task.py", "train.py"),
    "target": ("__init__.py", "target.py"),
    "loss": ("__init__.py", "loss.py"),
    "embedding-loss": ("__init__.py", "loss.py"),
    "metric": ("__init__.py", "metric.py"),
}
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_PREFIX = re.compile(r"[A-Z][A-Za-z0-9]*")


@dataclass(frozen=True)
class PluginNames:
    """Names of a new plugin."""

    # Name of the family and of the entry point, and the ``model_type`` of its checkpoints, such as
    # ``my-model``.
    name: str
    prefix: str | None = None  # Prefix of the names of classes; ``None`` for the words of the name.

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
        """Name of the family's class, and prefix of others: ``MyModel``."""
        return self.prefix or "".join(part.capitalize() for part in self.module.split("_"))


def write_project(
    names: PluginNames, kind: str, directory: Path, taken: Collection[str] = ()
) -> list[str]:
    """Write a project, and return the paths of its files."""
    # A template is a file of the project with ``.txt`` added to its name, in which words between
    # ``@`` stand for the names of the plugin.
    name = names.name
    prefix = names.class_name
    if not _NAME.fullmatch(name) or len(name) > 60:
        raise UsageError(
            f"{name!r} cannot be the name of a plugin", "use lower-case letters, digits and hyphens"
        )
    if not _PREFIX.fullmatch(prefix) or len(prefix) > 60:
        raise UsageError(
            f"{prefix!r} cannot be the name of a class",
            "use letters and digits, the first one a capital",
        )
    if name in all_entry_points():
        raise UsageError(f"a plugin called {name} is installed already")
    if name in taken:
        raise UsageError(f"there is a built-in {kind} called {name}", "give another name")
    if kind in KINDS and (family := family_of_model_type(name)):
        raise UsageError(
            f"{name} is a model_type of the family {family.name}, which is installed already",
            "give another name",
        )
    files = render(names, kind)
    with atomic_directory(directory) as staging:
        for path, text in files.items():
            (staging / path).parent.mkdir(parents=True, exist_ok=True)
            (staging / path).write_text(text, encoding="utf-8")
    return list(files)


def render(names: PluginNames, kind: str) -> dict[str, str]:
    """Return path -> contents of the files of a project."""
    values = {
        "name": names.name,
        "module": names.module,
        "package": names.package,
        "distribution": names.distribution,
        "Name": names.class_name,
    }
    if kind in KINDS:
        described = KINDS[kind]
        values |= {
            "description": described.description,
            "imports": described.imports,
            "base": described.base.partition(":")[2],
            "heads": described.heads,
            "head": described.head,
            "parameters": f"{described.parameters:_}",
        }
    test, modules = ("test_part.py", PARTS[kind]) if kind in PARTS else ("test_family.py", MODULES)
    sources = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        ".github/workflows/test.yml": "ci.yml",
        f"tests/test_{names.module}.py": test,
        **{f"{names.package}/{module}": module for module in modules},
    }
    words = re.compile(f"@({'|'.join(values)})@")
    files = {}
    root = resources.files("zoo.plugins") / "templates"
    for path, name in sources.items():  # the template of the kind, else the shared one
        templates = [root / folder / f"{name}.txt" for folder in (kind, "common")]
        text = next(file for file in templates if file.is_file()).read_text("utf-8")
        files[path] = words.sub(lambda match: values[match[1]], text)
    return files
