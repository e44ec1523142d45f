"""Entry points of installed distributions, read from their files.

``importlib.metadata`` reads them, too, but its import takes half the time of ``zoo --help``, which
lists the commands of plugins.
"""

import functools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

GROUP = "zoo"
API = 1  # version of the hooks and of the classes that plugins subclass
DISTRIBUTION = "plm-zoo"
SETTINGS = "plugins.yaml"  # in $ZOO_HOME: the plugins that are enabled and disabled
PLUGINS = re.compile(rf"{GROUP}(?:\.api([0-9]{{1,4}}))?")  # groups of plugins, for any version
CURRENT = (GROUP, f"{GROUP}.api{API}")  # groups of plugins that are written for this version
MODEL_TYPES = "model_types"  # last part of the groups that name the plugin of a model type
_FOLDER = re.compile(r"([^-]+)(?:-(.+?))?(?:-py[\d.]+)?\.(?:dist|egg)-info")


class EntryPoints(NamedTuple):  # a dataclass would take as long to import as all of this module
    """Entry points of one distribution.

    Attributes:
        distribution: normalized name of the distribution, such as ``zoo-mine``.
        version: its version; empty if its folder does not tell.
        groups: group -> name -> value.
    """

    distribution: str
    version: str
    groups: Mapping[str, Mapping[str, str]]

    def of(self, kind: str = "") -> dict[str, str]:
        """Return name -> value of the entry points for this version of the plugin API.

        Args:
            kind: last part of the group, such as ``tasks``; empty for plugins.
        """
        suffix = f".{kind}" if kind else ""
        parts = [self.groups.get(group + suffix, {}) for group in CURRENT]
        return {name: value for part in parts for name, value in part.items()}

    def plugins(self) -> set[str]:
        """Return the names of the plugins for any version of the plugin API."""
        return {
            name
            for group, entries in self.groups.items()
            if PLUGINS.fullmatch(group)
            for name in entries
        }


def third_party_entry_points() -> tuple[EntryPoints, ...]:
    """Return the entry points of third parties' distributions with plugins, by name."""
    return tuple(points for points in _entry_points() if points.distribution != DISTRIBUTION)


def contested_plugins() -> set[str]:
    """Return the names of plugins that several distributions have, or zoo and a third party."""
    names = Counter(name for points in _entry_points() for name in points.plugins())
    return {name for name, count in names.items() if count > 1}


@functools.cache
def _entry_points() -> tuple[EntryPoints, ...]:
    distributions: dict[str, EntryPoints] = {}
    for path in _files():
        match = _FOLDER.fullmatch(os.path.basename(os.path.dirname(path)))
        groups = _read(path)
        if match and any(group.partition(".")[0] == GROUP for group in groups):
            name = re.sub(r"[-_.]+", "-", match[1]).lower()
            distributions.setdefault(name, EntryPoints(name, match[2] or "", groups))
    return tuple(distributions[name] for name in sorted(distributions))


def _files() -> Iterator[str]:
    """Yield the paths of the files on the module search path, in its order."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = sorted(name for name in os.listdir(folder or ".") if name.endswith("-info"))
        except OSError:  # an archive, an import hook, or a directory that is not there
            continue
        yield from (os.path.join(folder, name, "entry_points.txt") for name in names)


def _read(path: str) -> dict[str, dict[str, str]]:
    """Return group -> name -> value; empty if the file cannot be read."""
    groups: dict[str, dict[str, str]] = {}
    entries: dict[str, str] = {}
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return {}
    if f"[{GROUP}".encode() not in content:  # most distributions have no plugin
        return {}
    for line in map(str.strip, content.decode("utf-8", "replace").splitlines()):
        if line.startswith("["):
            entries = groups.setdefault(line.strip("[]"), {})
        elif "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            entries[name.strip()] = value.strip()
    return groups
