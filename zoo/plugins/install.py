"""Installation of distributions into the environment that zoo runs in, by pip or uv."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import invalidate_caches, metadata
from pathlib import Path

from zoo.errors import PluginError, SourceError, UsageError
from zoo.plugins.discovery import PluginInfo, all_entry_points
from zoo.plugins.entry_points import GROUP, installed_entry_points

_UV_LINE = re.compile(r"^ ([+-]) (\S+?)(?:==(\S+)| @ (\S+)|)(?: \(from (\S+)\))?$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SPEC_WITH_NAME = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\]\s*)?(?:[<>=!~;@(].*)?")
_CAUSE = re.compile(r"(?:[Ee]rror|fatal|cause): ")


@dataclass(frozen=True)
class Change:
    """A distribution that an installation adds or replaces."""

    name: str
    version: str  # Its version; empty if the installer does not tell.
    url: str  # Where its files are from; empty if the installer does not tell.
    replaces: str | None  # Version that is installed now; ``None`` if there is none.


def installer() -> list[str]:
    """Return the environment's installer: uv if it created the environment, else pip."""
    settings = Path(sys.prefix, "pyvenv.cfg")
    is_made_by_uv = False
    if settings.is_file():
        is_made_by_uv = re.search(r"(?m)^uv\s*=", settings.read_text("utf-8")) is not None
    uv = shutil.which("uv")
    if is_made_by_uv and uv:
        return [uv, "pip"]
    try:
        metadata.version("pip")
    except metadata.PackageNotFoundError:
        if uv:
            return [uv, "pip"]
        raise UsageError(
            f"the environment {sys.prefix} has no pip, and there is no uv",
            f"`{sys.executable} -m ensurepip` installs pip",
        ) from None
    return [sys.executable, "-m", "pip"]


def uses_uv(command: Sequence[str]) -> bool:
    """Return whether the command of ``installer`` runs uv."""
    return command[0] != sys.executable


def plan_install(specs: Sequence[str], *, upgrade: bool = False) -> list[Change]:
    """Return what an installation would change, without changing anything."""
    for spec in specs:
        if spec.startswith("-"):
            raise UsageError(f"{spec} is an option, not a requirement")
        path = Path(spec)
        if spec.startswith((".", "/", "~")) and not path.expanduser().exists():
            raise UsageError(
                f"{spec} does not exist", "give a directory, a wheel, a name or git+URL"
            )
        # An installer would wait for a FIFO.
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UsageError(f"{spec} is neither a regular file nor a directory")
        project = any(Path(spec, name).is_file() for name in ("pyproject.toml", "setup.py"))
        if project and _NAME.fullmatch(spec):
            raise UsageError(
                f"{spec} is a name in the package index, and a directory here",
                f"./{spec} is the directory; install from the index in another directory",
            )
    changes: dict[str, Change] = {}
    for step in _steps(specs, upgrade):
        for change in _changes(step):
            changes[_canonical(change.name)] = change
    return list(changes.values())


def _steps(specs: Sequence[str], upgrade: bool) -> list[list[str]]:
    """Return the options and requirements of each run of the installer."""
    if not upgrade:
        return [[*specs]]
    options = ["--upgrade"]
    if uses_uv(installer()):
        options = [f"--upgrade-package={name}" for name in _names_in(specs)]
    steps = [[*options, *specs]]
    # An installer keeps a distribution from a path or a URL whose version is installed.
    reinstalled = [spec for spec in specs if _name_of(spec) is None or "@" in spec]
    if reinstalled:
        steps.append([*_reinstall_options(), *reinstalled])
    return steps


def _reinstall_options() -> list[str]:
    """Return the options that reinstall distributions without their dependencies."""
    if uses_uv(installer()):
        return ["--reinstall", "--no-deps"]
    return ["--force-reinstall", "--no-deps"]


def _name_of(spec: str) -> str | None:
    """Return the name in a requirement; ``None`` for a path or a URL."""
    match = _SPEC_WITH_NAME.fullmatch(spec)
    if match is None or Path(spec).is_file():
        return None
    return match[1]


def _names_in(specs: Sequence[str]) -> list[str]:
    """Return the names in those requirements that have one."""
    names = []
    for spec in specs:
        name = _name_of(spec)
        if name is not None:
            names.append(name)
    return names


def distributions_of(specs: Sequence[str]) -> list[str]:
    """Return the names of the distributions that requirements ask for, installed or not."""
    names = _names_in(specs)
    unnamed = [spec for spec in specs if _name_of(spec) is None]
    if unnamed:
        names += [change.name for change in _changes([*_reinstall_options(), *unnamed])]
    return names


def _changes(arguments: Sequence[str]) -> list[Change]:
    """Return what one run of the installer would change."""
    command = installer()
    if uses_uv(command):
        target = [*_target(command), "--dry-run"]
        return _parse_uv(_run([*command, "install", *target, *arguments]).stderr)
    options = ["--dry-run", "--quiet", "--disable-pip-version-check", "--report", "-"]
    report = json.loads(_run([*command, "install", *options, *arguments]).stdout)
    changes = []
    for item in report["install"]:
        name = item["metadata"]["name"]
        version = item["metadata"]["version"]
        url = item["download_info"]["url"]
        changes.append(Change(name, version, url, _installed_version(name)))
    return changes


def _parse_uv(text: str) -> list[Change]:
    """Return the additions of uv's list of changes."""
    changes = []
    for match in _UV_LINE.finditer(text):
        sign, name, version, url, source = match.groups(default="")
        if sign != "+":
            continue
        if not version and url.endswith(".whl"):
            file_name = url.rpartition("/")[2]
            version = file_name.split("-")[1]  # As PEP 427 defines the names of wheels.
        changes.append(Change(name, version, url or source, _installed_version(name)))
    return changes


def install(specs: Sequence[str], *, upgrade: bool = False) -> None:
    """Install requirements; ``plan_install`` takes the same arguments."""
    command = installer()
    options = _target(command)
    if not uses_uv(command):
        options += ["--quiet", "--disable-pip-version-check"]
    for step in _steps(specs, upgrade):
        _run([*command, "install", *options, *step])


def uninstall(distribution: str) -> None:
    """Uninstall a distribution."""
    command = installer()
    options = _target(command)
    if not uses_uv(command):
        options += ["--yes", "--quiet", "--disable-pip-version-check"]
    _run([*command, "uninstall", *options, distribution])


def plugins_of(distributions: Sequence[str]) -> list[PluginInfo]:
    """Return the plugins of distributions, including distributions installed since the start."""
    invalidate_caches()  # The installer ran in another process.
    installed_entry_points.cache_clear()
    all_entry_points.cache_clear()
    names = {_canonical(name) for name in distributions}
    plugins = []
    for rivals in all_entry_points().values():
        for plugin in rivals:
            if _canonical(plugin.distribution) in names:
                plugins.append(plugin)
    return plugins


def distribution_of(name: str) -> str:
    """Return the distribution to uninstall, for the name of a plugin or of a distribution."""
    rivals = all_entry_points().get(name) or plugins_of([name])
    distributions = sorted({plugin.distribution for plugin in rivals})
    if not distributions:
        raise UsageError(f"no plugin and no distribution with plugins is called {name!r}")
    if len(distributions) > 1:
        raise UsageError(
            f"{name} is in {' and '.join(distributions)}", "give the name of the distribution"
        )
    if rivals[0].built_in:
        raise UsageError(f"{name} is built in", f"`zoo plugins disable {name}` leaves it out")
    return distributions[0]


def require_plugins(changes: Sequence[Change], specs: Sequence[str]) -> list[PluginInfo]:
    """Return the plugins that an installation brought, or that were installed already."""
    if changes:
        names = [change.name for change in changes] + _names_in(specs)
    else:
        names = distributions_of(specs)
    plugins = [plugin for plugin in plugins_of(names) if not plugin.built_in]
    if not plugins and not changes:
        raise UsageError(f"{', '.join(names)} is installed already, and has no plugin")
    if not plugins:
        added = [change.name for change in changes]
        raise PluginError(
            f"{' '.join(specs)} has no plugin: none of {', '.join(added)} has an entry point in "
            f"the group {GROUP}",
            f"`{' '.join([*installer(), 'uninstall', *added])}` removes them",
        )
    return plugins


def _target(command: Sequence[str]) -> list[str]:
    return ["--python", sys.executable] if uses_uv(command) else []


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    process = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if process.returncode:
        name = "uv pip" if uses_uv(command) else "pip"
        verb = next(part for part in command if part in ("install", "uninstall"))
        raise SourceError(f"{name} {verb} failed: {_reason(process.stderr)}")
    return process


def _reason(stderr: str) -> str:
    """Return the last error of an installer, and its cause in the build or in git."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:")]
    # pip says no more than "Exception:" above a traceback, which ends with the error.
    errors = [line for line in errors if not line.endswith("Exception:")]
    if not errors:
        errors = lines[-1:]
    causes = [line for line in lines if line not in errors and _CAUSE.search(line)]
    reason = re.sub("(?i)^error: *", "", " ".join(errors[-1:]))
    if not causes:
        return reason
    cause = causes[-1].removeprefix("cause: ")
    return f"{reason} ({cause})"
