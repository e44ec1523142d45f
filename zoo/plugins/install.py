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
    version: str  # its version; empty if the installer does not tell
    url: str  # where its files are from; empty if the installer does not tell
    replaces: str | None  # version that is installed now; ``None`` if there is none


def installer() -> list[str]:
    """Return the environment's installer: uv if it created the environment, else pip."""
    settings = Path(sys.prefix, "pyvenv.cfg")
    by_uv = settings.is_file() and re.search(r"(?m)^uv\s*=", settings.read_text("utf-8"))
    uv = shutil.which("uv")
    if by_uv and uv:
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
        # an installer waits for a FIFO
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UsageError(f"{spec} is neither a regular file nor a directory")
        project = any(Path(spec, name).is_file() for name in ("pyproject.toml", "setup.py"))
        if project and _NAME.fullmatch(spec):
            raise UsageError(
                f"{spec} is a name in the package index, and a directory here",
                f"./{spec} is the directory; install from the index in another directory",
            )
    changes = [change for step in _steps(specs, upgrade) for change in _changes(step)]
    return list({_canonical(change.name): change for change in changes}.values())


def _steps(specs: Sequence[str], upgrade: bool) -> list[list[str]]:
    """Return the options and requirements of each run of the installer."""
    if not upgrade:
        return [[*specs]]
    names = [name for spec in specs if (name := _name_of(spec))]
    newest = [f"--upgrade-package={name}" for name in names] if uses_uv(installer()) else None
    steps = [[*(["--upgrade"] if newest is None else newest), *specs]]
    again = [spec for spec in specs if _name_of(spec) is None or "@" in spec]
    return [*steps, [*_again(), *again]] if again else steps


def _again() -> list[str]:
    """Return the options that reinstall distributions without their dependencies."""
    return ["--reinstall" if uses_uv(installer()) else "--force-reinstall", "--no-deps"]


def _name_of(spec: str) -> str | None:
    """Return the name in a requirement; ``None`` for a path or a URL."""
    match = _SPEC_WITH_NAME.fullmatch(spec)
    return match[1] if match and not Path(spec).is_file() else None


def distributions_of(specs: Sequence[str]) -> list[str]:
    """Return the names of the distributions that requirements ask for, installed or not."""
    unnamed = [spec for spec in specs if _name_of(spec) is None]
    resolved = [change.name for change in _changes([*_again(), *unnamed])] if unnamed else []
    return [*filter(None, map(_name_of, specs)), *resolved]


def _changes(arguments: Sequence[str]) -> list[Change]:
    """Return what one run of the installer would change."""
    command = installer()
    if uses_uv(command):
        target = [*_target(command), "--dry-run"]
        return _parse_uv(_run([*command, "install", *target, *arguments]).stderr)
    options = ["--dry-run", "--quiet", "--disable-pip-version-check", "--report", "-"]
    report = json.loads(_run([*command, "install", *options, *arguments]).stdout)
    return [
        Change(
            item["metadata"]["name"],
            item["metadata"]["version"],
            item["download_info"]["url"],
            _installed_version(item["metadata"]["name"]),
        )
        for item in report["install"]
    ]


def _parse_uv(text: str) -> list[Change]:
    """Return the additions of uv's list of changes."""
    lines = [match.groups(default="") for match in _UV_LINE.finditer(text)]
    return [
        Change(
            name,
            # a wheel's file name has the version (PEP 427)
            version or (url.rpartition("/")[2].split("-")[1] if url.endswith(".whl") else ""),
            url or source,
            _installed_version(name),
        )
        for sign, name, version, url, source in lines
        if sign == "+"
    ]


def install(specs: Sequence[str], *, upgrade: bool = False) -> None:
    """Install requirements; ``plan_install`` takes the same arguments."""
    command = installer()
    quiet = [] if uses_uv(command) else ["--quiet", "--disable-pip-version-check"]
    for step in _steps(specs, upgrade):
        _run([*command, "install", *_target(command), *quiet, *step])


def uninstall(distribution: str) -> None:
    """Uninstall a distribution."""
    command = installer()
    yes = [] if uses_uv(command) else ["--yes", "--quiet", "--disable-pip-version-check"]
    _run([*command, "uninstall", *_target(command), *yes, distribution])


def plugins_of(distributions: Sequence[str]) -> list[PluginInfo]:
    """Return the plugins of distributions, including distributions installed since the start."""
    invalidate_caches()  # the installer ran in another process
    installed_entry_points.cache_clear()
    all_entry_points.cache_clear()
    names = {_canonical(name) for name in distributions}
    plugins = [plugin for rivals in all_entry_points().values() for plugin in rivals]
    return [plugin for plugin in plugins if _canonical(plugin.distribution) in names]


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
    named = [name for spec in specs if (name := _name_of(spec))]
    names = [change.name for change in changes] + named if changes else distributions_of(specs)
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
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        name = "uv pip" if uses_uv(command) else "pip"
        verb = next(part for part in command if part in ("install", "uninstall"))
        raise SourceError(f"{name} {verb} failed: {_reason(done.stderr)}")
    return done


def _reason(stderr: str) -> str:
    """Return the last error of an installer, and its cause in the build or in git."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:")]
    # pip says no more than "Exception:" above a traceback, which ends with the error
    errors = [line for line in errors if not line.endswith("Exception:")] or lines[-1:]
    causes = [line for line in lines if line not in errors and _CAUSE.search(line)]
    reason = re.sub("(?i)^error: *", "", " ".join(errors[-1:]))
    return f"{reason} ({causes[-1].removeprefix('cause: ')})" if causes else reason
