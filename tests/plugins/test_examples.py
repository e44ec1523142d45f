"""The plugins of ``examples/plugins``, installed and used like built-in families."""

import tomllib
from pathlib import Path

import pytest

from tests.plugins.installed import Installed
from tests.plugins.making import EXAMPLES
from zoo.plugins.scaffold import PluginNames, render


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))
def test_its_own_tests_pass(name: str, tmp_path: Path) -> None:
    plugin = Installed(tmp_path, EXAMPLES / name)
    *_, last = plugin.python("pytest", "-p", "no:cacheprovider", plugin.source / "tests").split(
        "\n"
    )[:-1]
    assert "passed" in last and "failed" not in last, last


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))
def test_an_example_is_named_as_the_template_names_it(name: str) -> None:
    names, project = PluginNames(name), EXAMPLES / name
    described = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    assert described["name"] == names.distribution
    assert described["entry-points"]["zoo.api1"] == {name: names.package}
    for path in ("README.md", f"{names.package}/__init__.py", f"tests/test_{names.module}.py"):
        assert path in render(names, "encoder") and (project / path).is_file()
