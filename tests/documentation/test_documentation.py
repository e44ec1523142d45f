"""Links, files, Python names and options in the documentation exist."""

import importlib
import re
from pathlib import Path

import pytest

from tests.interfaces import commands
from zoo.plugins.entry_point_objects import KINDS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/plugins/*/*.md"),
    )
    if path.name != "CHANGELOG.md"  # it names what was removed
)
# files of a model and of a project, and a group of entry points: no Python names
LOCAL_FILES = (
    "zoo.json",
    "zoo.lock",
    "zoo.api1",
    "zoo.api2",
    *(f"zoo.api1.{kind}" for kind in KINDS),
)
FOREIGN = re.compile(
    r"torchrun|srun|SBATCH|rdzv|signals-to-handle|mypy|tests\.fuzz|-m benchmarks|-m tools|"
    "pip install|--array=|sbatch"
)


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def exists(name: str) -> bool:
    """Return whether a dotted name is a module or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for attribute in parts[length:]:
            if not hasattr(value, attribute):
                return False
            value = getattr(value, attribute)
        return True
    return False


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files(name: str) -> None:
    links = set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page(name)))
    assert [
        link for link in sorted(links) if not (ROOT / name).parent.joinpath(link).exists()
    ] == []


@pytest.mark.parametrize("name", PAGES)
def test_files_of_the_repository_exist(name: str) -> None:
    paths = set(
        re.findall(
            r"`((?:zoo|plugins|converters|tests|benchmarks|docs|examples)/[\w./]+)`", page(name)
        )
    )
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_python_names_exist(name: str) -> None:
    names = set(re.findall(r"`(zoo(?:\.\w+)+)`", page(name))) - set(LOCAL_FILES)
    assert [dotted for dotted in sorted(names) if not exists(dotted)] == []


@pytest.mark.parametrize("name", PAGES)
def test_options_exist(name: str) -> None:
    lines = [line for line in page(name).splitlines() if not FOREIGN.search(line)]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", "\n".join(lines)))
    parameters = [parameter for _, command in commands() for parameter in command.params]
    known = {name for part in parameters for name in [*part.opts, *part.secondary_opts]}
    assert sorted(named - known - {"--help"}) == []


def test_environment_variables_are_documented() -> None:
    sources = (path.read_text("utf-8") for path in (ROOT / "zoo").rglob("*.py"))
    reads = r'environ(?:\.get\(|\[|ment\()"([A-Z]\w*)"(?!\] =)'
    variables = {name for source in sources for name in re.findall(reads, source)}
    table = set(re.findall(r"`([A-Z][A-Z_]+)`", page("docs/api.md")))
    assert {"ZOO_HOME", "ZOO_PLUGINS", "RANK"} <= variables
    assert sorted(variables - table) == []


def test_pages_are_found() -> None:
    assert {"README.md", "docs/api.md", "examples/plugins/rembert/README.md"} <= set(PAGES)
    assert exists("zoo.load") and not exists("zoo.nothing") and not exists("zoo.nn.nothing")
