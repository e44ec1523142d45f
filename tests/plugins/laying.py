"""Distributions of third-party plugins, laid out as by pip."""

from collections.abc import Mapping
from pathlib import Path

from zoo.plugins import discovery, entry_point_objects, entry_points

FAMILY = """
from zoo.plugins.hookspecs import hookimpl
from zoo_bert import Bert

class Mine(Bert):
    name = "mine"
    model_types = ("mine",)

@hookimpl
def zoo_families():
    return [Mine()]
"""


# The family of zoo_mine is a subclass that overrides the method with its own module.
OVERRIDES = {
    "model.py": """
    def model(self, config, head):
        from zoo_mine.model import build
        return build(config, head)
""",
    "weights.py": """
    def weights(self, config, head):
        from zoo_mine.weights import weights
        return weights(config, head)
""",
}


def lay_out(folder: Path, files: Mapping[str, str], first: str = FAMILY) -> Path:
    """Write the distribution ``zoo-mine`` with the package ``zoo_mine``; return its directory.

    Args:
        folder: target directory.
        files: path -> contents of further files of the package.
        first: contents of the package's ``__init__.py``.
    """
    methods = "".join(text for name, text in OVERRIDES.items() if name in files)
    first = first.replace("\n@hookimpl", f"{methods}\n@hookimpl", 1)
    info = folder / "zoo_mine-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-mine\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[zoo.api1]\nmine = zoo_mine\n")
    (folder / "zoo_mine").mkdir()
    for name, text in {"__init__.py": first, **files}.items():
        (folder / "zoo_mine" / name).write_text(text)
    return folder


def declare_model_types(site: Path, module: str, *model_types: str) -> None:
    """Add entry points for the model types of a module to the metadata of its distribution."""
    (info,) = site.glob(f"{module}-*.dist-info")
    lines = [f"{model_type} = {module}\n" for model_type in model_types]
    with (info / "entry_points.txt").open("a") as file:
        file.write("".join(["\n[zoo.api1.model_types]\n", *lines]))


def find_again() -> None:
    """Let this process find its distributions again."""
    for cached in (
        entry_points.installed_entry_points,
        discovery.all_entry_points,
        discovery.entry_points_by_name,
        discovery.installed,
        discovery.declared_model_types,
        entry_point_objects.named_objects,
    ):
        cached.cache_clear()
