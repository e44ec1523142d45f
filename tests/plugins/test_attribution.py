"""Exceptions in third-party plugins: exit code 5, and an error line that names the plugin."""

import json
from pathlib import Path

import pytest

from tests.inference.making import make_checkpoint, write_manifest
from tests.plugins.laying import FAMILY, lay_out
from tests.warm import zoo

BUILD = "def build(config, head):\n    {}\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A checkpoint of the plugin's family."""
    path = make_checkpoint(tmp_path / "model", num_layers=1).path
    described = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**described, "family": "mine"}))
    write_manifest(path)
    return path


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model.py": "def build(:\n"}, "SyntaxError: invalid syntax (model.py, line 1"),
        ({"model.py": BUILD.format("return 1 / 0")}, "division by zero (model.py, line 2"),
        *(
            pytest.param(files, message, marks=pytest.mark.long)
            for files, message in (
                ({"model.py": BUILD.format("raise BaseException('odd')")}, "BaseException: odd (m"),
                ({"model.py": BUILD.format("raise SystemExit(0)")}, "SystemExit: 0 (model.py, li"),
                ({"model.py": "import nowhere\n"}, "No module named 'nowhere' (model.py, line 1"),
                ({"model.py": BUILD.format("return int('a\\nb')")}, "(model.py, line 2"),
                ({"model.py": BUILD.format("import json; json.loads('{')")}, "(model.py, line 2"),
                ({"weights.py": "1 / 0\n"}, "division by zero (weights.py, line 1"),
            )
        ),
    ],
)
def test_an_exception_in_a_file_of_a_plugin(
    model: Path, tmp_path: Path, files: dict[str, str], message: str
) -> None:
    site = lay_out(tmp_path / "site", files)
    done = zoo("verify", model, "--no-parity", "--json", PYTHONPATH=str(site))
    assert done.returncode == 5, done.stderr
    assert done.stderr.count("\n") == 1
    assert "plugin mine (from zoo-mine 1.2) is broken: " in done.stderr
    assert message in done.stderr and "reinstall or uninstall it" in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 5


def test_exception_of_a_built_in_family_names_no_other_plugin(
    tmp_path: Path,
) -> None:
    """The plugin is installed, but not used."""
    site = lay_out(tmp_path / "site", {"model.py": "1 / 0\n"})
    path = make_checkpoint(tmp_path / "model", num_layers=1).path
    done = zoo("verify", path, "--no-parity", PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr


@pytest.mark.by_default("SystemExit")
@pytest.mark.parametrize("kind", ["BaseException", "GeneratorExit", "SystemExit", "MemoryError"])
def test_exception_at_import_is_one_warning(tmp_path: Path, kind: str) -> None:
    site = lay_out(tmp_path / "site", {}, first=f"raise {kind}('odd \\x1b[31m\\nerror: forged')\n")
    done = zoo("families", "--json", PYTHONPATH=str(site))
    assert done.returncode == 0
    assert "bert" in json.loads(done.stdout)["families"]
    assert done.stderr.startswith("warning: plugin mine (from zoo-mine 1.2) is broken")
    assert done.stderr.count("\n") == 1 and "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "method", ["def heads(self):\n        raise ValueError('none')", "sizes = lambda self: 7"]
)
def test_broken_family_does_not_hide_others(tmp_path: Path, method: str) -> None:
    first = FAMILY.replace('("mine",)', f'("mine",)\n    {method}')
    done = zoo("families", "--json", PYTHONPATH=str(lay_out(tmp_path / "site", {}, first=first)))
    assert done.returncode == 0, done.stderr
    families = json.loads(done.stdout)["families"]
    assert "bert" in families and "mine" not in families
    assert "zoo-mine 1.2" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.by_default("families", "plugins")
@pytest.mark.parametrize("command", ["families", "models", "plugins", "doctor"])
def test_output_of_a_plugin_does_not_break_json(tmp_path: Path, command: str) -> None:
    noise = "import sys\nprint('hello')\nsys.stdout.write('there\\n')\n"
    hook = FAMILY.replace("    return [", "    print('once more')\n    return [")
    site = lay_out(tmp_path / "site", {}, first=noise + hook)
    done = zoo(command, "--json", PYTHONPATH=str(site))
    assert done.returncode == 0
    assert isinstance(json.loads(done.stdout), dict)
    assert done.stderr.startswith("hello\nthere\n")
