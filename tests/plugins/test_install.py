"""``zoo plugins install`` and ``uninstall``, in an environment of their own without a network."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.laying import FAMILY
from tests.plugins.making import LOGGER, Environment, make_wheel
from tests.plugins.making import environment as environment
from zoo.plugins import install
from zoo.plugins.install import Change
from zoo.plugins.settings import settings_file


@pytest.mark.parametrize(
    ("answer", "installed"),
    [(b"n\n", False), pytest.param(b"y\n", True, marks=pytest.mark.long)],
)
def test_an_answer_at_the_terminal_decides(
    environment: Environment, tmp_path: Path, answer: bytes, installed: bool
) -> None:
    """The distributions are listed before the question; nothing is installed after a no."""
    terminal, stdin = pty.openpty()
    os.write(terminal, answer)
    done = environment.zoo("install", make_wheel(tmp_path, LOGGER), stdin=stdin)
    os.close(terminal)
    os.close(stdin)
    _, listed, prompt = done.stderr.splitlines()
    assert listed.split()[:2] == ["zoo-mine", "1.2"]
    assert prompt.startswith("Install them? [y/N]")
    assert done.returncode == 0
    assert bool([*(environment.folder / "lib").rglob("zoo_mine*")]) == installed
    assert ("mine: loggers mine" in done.stdout) == installed


def test_plugin_is_installed_checked_and_uninstalled(
    environment: Environment, tmp_path: Path
) -> None:
    done = environment.zoo("install", make_wheel(tmp_path, LOGGER), "--yes", "--json")
    assert done.returncode == 0, done.stderr
    (change,) = json.loads(done.stdout)["changes"]
    assert (change["name"], change["version"], change["replaces"]) == ("zoo-mine", "1.2", None)
    (plugin,) = json.loads(done.stdout)["plugins"]
    assert plugin["provides"] == {"loggers": ["mine"]} and plugin["health"] == "ok"
    site = environment.folder / "lib"
    assert plugin["location"].startswith(str(site)) and len(plugin["record_sha256"]) == 64
    done = environment.zoo("install", "zoo-mine", "--json")
    again = json.loads(done.stdout)
    assert (again["changes"], again["installed"], again["plugins"]) == ([], False, [plugin])
    settings = settings_file()
    settings.parent.mkdir(exist_ok=True)
    settings.write_text("enabled: [bert]\n")
    done = environment.zoo("install", make_wheel(tmp_path, LOGGER, "1.3"), "--yes")
    assert done.returncode == 0 and "`zoo plugins enable mine`" in done.stderr
    assert environment.zoo("enable", "mine").returncode == 0
    done = environment.zoo("uninstall", "mine", "--yes")
    assert (done.returncode, done.stdout) == (0, "zoo-mine is uninstalled\n"), done.stderr
    assert list(site.rglob("zoo_mine*")) == []
    assert settings.read_text() == "enabled:\n- bert\n"


@pytest.mark.long
def test_broken_plugins_are_reported_with_the_command_that_removes_them(
    environment: Environment, tmp_path: Path
) -> None:
    no_tiny = FAMILY.replace('"mine"\n', '"mine"\n    sizes = lambda self: {}\n', 1)
    for version, source, message in (
        ("1.2", "raise RuntimeError('odd')\n", "RuntimeError: odd"),
        ("1.3", no_tiny, "heads and sizes of mine: KeyError: 'tiny'"),
        ("1.4", "import os\nos.kill(os.getpid(), 9)\n", "the checks ended with exit code -9"),
    ):
        done = environment.zoo("install", make_wheel(tmp_path, source, version), "--yes")
        assert done.returncode == 5, done.stderr
        assert message in done.stderr and "`zoo plugins uninstall mine` removes it" in done.stderr
        assert (done.stderr.count("\n"), done.stderr.count("uninstall")) == (1, 1), done.stderr
        again = environment.zoo("install", make_wheel(tmp_path, source, version))
        assert (again.returncode, again.stderr) == (5, done.stderr)
    assert environment.zoo("uninstall", "zoo-mine", "--yes").returncode == 0
    done = environment.zoo("install", make_wheel(tmp_path, "", "1.5", "[other]"), "--yes")
    assert done.returncode == 5 and "uninstall zoo-mine` removes" in done.stderr


def commit(repository: Path, source: str) -> str:
    """Commit a plugin with this module, and return the requirement for pip."""
    repository.mkdir(exist_ok=True)
    (repository / "zoo_mine.py").write_text(source)
    (repository / "pyproject.toml").write_text(
        '[project]\nname = "zoo-mine"\nversion = "1.2"\n'
        '[project.entry-points."zoo.api1"]\nmine = "zoo_mine"\n'
        '[tool.setuptools]\npy-modules = ["zoo_mine"]\n'
    )
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init"], ["add", "."], [*author, "commit", "-m", "Change the plugin"]):
        subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True)
    return f"git+{repository.as_uri()}"


@pytest.mark.long
def test_repository_is_checked_again_and_upgraded(environment: Environment, tmp_path: Path) -> None:
    """The version stays the same, with which pip has everything installed already."""
    url = commit(tmp_path / "repository", "raise RuntimeError('odd')\n")
    for options in (["--yes"], []):
        done = environment.zoo("install", url, *options)
        assert done.returncode == 5 and "RuntimeError: odd" in done.stderr
    assert done.stdout.startswith("everything is installed already\n")
    commit(tmp_path / "repository", LOGGER)
    planned = environment.zoo("install", url, "--upgrade", "--json")
    (change,) = json.loads(planned.stdout)["changes"]
    assert (change["version"], change["replaces"]) == ("1.2", "1.2")
    done = environment.zoo("install", url, "--upgrade", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    (plugin,) = json.loads(done.stdout)["plugins"]
    assert plugin["provides"] == {"loggers": ["mine"]} and plugin["health"] == "ok"


@pytest.mark.long
def test_directory_is_built_and_its_family_used(environment: Environment, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "zoo_mine").mkdir(parents=True)
    (source / "zoo_mine" / "__init__.py").write_text(FAMILY)
    (source / "pyproject.toml").write_text(
        '[project]\nname = "zoo-mine"\nversion = "2"\ndependencies = ["plm-zoo"]\n'
        '[project.entry-points."zoo.api1"]\nmine = "zoo_mine"\n'
        '[tool.setuptools]\npackages = ["zoo_mine"]\n'
    )
    planned = json.loads(environment.zoo("install", source, "--json").stdout)
    assert planned["installed"] is False and len(planned["changes"]) == 1
    done = environment.zoo("install", source, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    (plugin,) = json.loads(done.stdout)["plugins"]
    assert plugin["provides"] == {"families": ["mine"]} and plugin["health"] == "ok"


@pytest.mark.long
def test_printed_next_step_installs_the_directory(environment: Environment) -> None:
    """A bare name would be that of a stranger's package in the index."""
    done = environment.zoo("new", "mine", "-o", "my mine")
    (line,) = re.findall("^next: zoo plugins (.*)$", done.stdout, re.MULTILINE)
    planned = environment.zoo(*shlex.split(line), "--json")
    assert planned.returncode == 0, planned.stderr
    (change,) = json.loads(planned.stdout)["changes"]
    assert change["url"] == (environment.folder / "my mine").resolve().as_uri()
    environment.zoo("new", "mine")
    done = environment.zoo("install", "zoo-mine", "--yes")
    assert done.returncode == 2 and "./zoo-mine is the directory" in done.stderr
    absolute = environment.zoo("new", "mine", "-o", environment.folder / "other")
    assert f"next: zoo plugins install {environment.folder / 'other'}\n" in absolute.stdout


@pytest.mark.long
def test_refusals(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "unversioned").mkdir()
    (tmp_path / "unversioned" / "pyproject.toml").write_text('[project]\nname = "zoo-mine"\n')
    for arguments, code, message in (
        (("install", "zoo-nowhere", "--yes"), 4, "pip install failed: No matching distribution"),
        (("install", tmp_path / "unversioned"), 4, "`project` must contain ['version']"),
        (("install", "numpy"), 2, "numpy is installed already, and has no plugin"),
        (("install", "--yes", "--", "-r"), 2, "-r is an option"),
        (("uninstall", "bert"), 2, "`zoo plugins disable bert`"),
        (("uninstall", "nothing"), 2, "no plugin"),
    ):
        done = environment.zoo(*arguments)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert message in done.stderr


@pytest.mark.long  # the lines of uv are read below, and its commands are those of pip
def test_uv_installs_and_uninstalls_in_its_environment(tmp_path: Path) -> None:
    """The same results as by pip, by the commands of uv itself."""
    environment = Environment(tmp_path / "environment", by_uv=True)
    assert "uv = " in (environment.folder / "pyvenv.cfg").read_text()
    done = environment.zoo("install", make_wheel(tmp_path, LOGGER), "--json")
    value = json.loads(done.stdout)
    (change,) = value["changes"]
    assert (change["name"], change["version"], change["replaces"]) == ("zoo-mine", "1.2", None)
    assert change["url"].endswith("zoo_mine-1.2-py3-none-any.whl") and not value["installed"]
    assert [*(environment.folder / "lib").rglob("zoo_mine*")] == []
    done = environment.zoo("install", make_wheel(tmp_path, LOGGER), "--yes", "--json")
    (plugin,) = json.loads(done.stdout)["plugins"]
    assert plugin["provides"] == {"loggers": ["mine"]} and plugin["health"] == "ok", done.stderr
    done = environment.zoo("install", make_wheel(tmp_path, LOGGER, "1.3"), "--upgrade", "--yes")
    assert done.returncode == 0, done.stderr
    (info,) = (environment.folder / "lib").rglob("zoo_mine-*.dist-info")
    assert info.name == "zoo_mine-1.3.dist-info"
    done = environment.zoo("install", "zoo-nowhere", "--yes")
    assert done.returncode == 4 and done.stderr.startswith("error: uv pip install failed: No sol")
    done = environment.zoo("uninstall", "mine", "--yes")
    assert (done.returncode, done.stdout) == (0, "zoo-mine is uninstalled\n"), done.stderr
    assert [*(environment.folder / "lib").rglob("zoo_mine*.py")] == []


def test_list_of_changes_of_uv() -> None:
    """The lines that uv 0.5 prints for ``pip install --dry-run``, and uv 0.13 for URLs."""
    text = (
        "Resolved 2 packages in 5ms\nWould download 1 package\nWould uninstall 1 package\n"
        "Would install 2 packages\n - pip==1.0\n + pip==99.0\n"
        " + zoo-mine==1.2 (from file:///wheels/zoo_mine-1.2-py3-none-any.whl)\n"
    )
    text += " + zoo-git @ git+file:///repo@ff0a24c76df07cd219cb092435c4877c26cca3fc\n"
    text += " + zoo-wheel @ file:///wheels/zoo_wheel-1.2-py3-none-any.whl\n"
    replaced, new, by_url, wheel = install._parse_uv(text)
    assert (wheel.name, wheel.version) == ("zoo-wheel", "1.2")
    assert (by_url.name, by_url.version) == ("zoo-git", "")
    assert by_url.url == "git+file:///repo@ff0a24c76df07cd219cb092435c4877c26cca3fc"
    assert (replaced.name, replaced.version) == ("pip", "99.0") and replaced.replaces is not None
    assert new == Change("zoo-mine", "1.2", "file:///wheels/zoo_mine-1.2-py3-none-any.whl", None)


def test_installer_is_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv").write_text("#!/bin/sh\n")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert install.installer() == [sys.executable, "-m", "pip"]
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.5.1\n")
    assert install.installer() == [str(tmp_path / "uv"), "pip"]


def test_an_error_of_pip_above_a_traceback_is_its_last_line() -> None:
    lines = ["ERROR: Exception:", "Traceback (most recent call last):", "InvalidMarker: a;b"]
    assert install._reason("\n".join(lines)) == "InvalidMarker: a;b"
