"""The tests that ``make check`` selects for a change."""

from pathlib import Path

import pytest

from tools.affected_tests import ALWAYS, MOST, affected_tests, mirroring_tests, module_name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with two modules, a test that mirrors one of them, and tests that import."""
    sources = {
        "zoo/io/json.py": "",
        "zoo/io/yaml.py": "",
        "zoo/io/__init__.py": "",
        "tests/io/test_json.py": "import sys\n",
        "tests/io/test_json_numbers.py": "import sys\n",
        "tests/io/test_io.py": "import sys\n",
        "tests/test_names.py": "from zoo.io.json import read_json\n",
        "tests/test_package.py": "from zoo.io import yaml\n",
        "tests/test_other.py": "import zoo.errors\n",
        "tests/documentation/test_documentation.py": "",
        **dict.fromkeys(ALWAYS, ""),
    }
    for name, source in sources.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            "zoo/io/json.py",
            ["tests/io/test_json.py", "tests/io/test_json_numbers.py", "tests/test_names.py"],
        ),
        ("zoo/io/yaml.py", ["tests/test_package.py"]),
        ("zoo/io/__init__.py", ["tests/io/test_io.py", "tests/test_package.py"]),
        ("tests/test_other.py", ["tests/test_other.py"]),
        ("docs/page.md", ["tests/documentation/test_documentation.py"]),
        ("LICENSE", []),
    ],
)
def test_a_change_selects_its_tests(root: Path, changed: str, expected: list[str]) -> None:
    assert affected_tests([changed], root) == (sorted([*expected, *ALWAYS]), [])


def test_of_many_tests_that_import_a_module_the_most_direct_ones_are_selected(root: Path) -> None:
    """Those with fewer imports of the project; tests that mirror a module are not counted."""
    names = [f"tests/test_many_{number:02}.py" for number in range(MOST + 2)]
    for name in names:
        (root / name).write_text("import os\nfrom zoo.io.json import read_json\n")
    (root / names[0]).write_text("import zoo.errors, zoo.io.json, zoo.nn.encoder\n")
    (root / "tests/io/test_json.py").write_text("import zoo.errors, zoo.hub, zoo.io.json\n")
    selected, omitted = affected_tests(["zoo/io/json.py"], root)
    assert {"tests/io/test_json.py", "tests/io/test_json_numbers.py", *ALWAYS} < {*selected}
    assert {*omitted} == {*names, "tests/test_names.py"} - {*selected}
    assert names[0] in omitted and len(omitted) == 3


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("plugins/zoo_bert/model.py", "zoo_bert.model"),
        ("converters/zoo_converters/__init__.py", "zoo_converters"),
        ("tools/demo.py", "tools.demo"),
    ],
)
def test_names_of_modules(file: str, module: str) -> None:
    assert module_name(file) == module


def test_converters_and_tools_have_mirrors() -> None:
    assert [*mirroring_tests("converters/zoo_converters/gguf.py")] == [
        "tests/converters/test_gguf.py"
    ]
    assert "tests/tools/test_settings.py" in mirroring_tests("tools/settings.py")
