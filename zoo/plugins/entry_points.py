"""Entry points of the installed distributions, read from their files."""

import functools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

API = 1  # version of the hooks and of the classes that plugins subclass
GROUP = f"zoo.api{API}"
MODEL_TYPES = "model_types"  # the group of the model types that a plugin's families have
PLUGINS = re.compile(r"zoo\.api([0-9]{1,4})")  # groups of plugins, for any version
DISTRIBUTION = "plm-zoo"
SETTINGS = "plugins.yaml"  # in $ZOO_HOME: the plugins that are enabled and disabled
_FOLDER = re.compile(r"([^-]+)(?:-(.+?))?(?:-py[\d.]+)?\.(?:dist|egg)-info")
_VERSION = re.compile(r"^Version: *(\S+)", re.MULTILINE)


class EntryPoints(NamedTuple):  # a dataclass would take as long to import as all of this module
    """Entry points of one distribution."""

    distribution: str  # Normalized name of the distribution, such as ``zoo-mine``.
    version: str
    groups: Mapping[str, Mapping[str, str]]

    def of(self, kind: str = "") -> dict[str, str]:
        """Return name -> value of the entry points for this version of the plugin API."""
        group = f"{GROUP}.{kind}" if kind else GROUP
        return dict(self.groups.get(group, {}))

    def plugins(self) -> dict[str, tuple[str, int]]:
        """Return name -> module and API version of the plugins; this version precedes others."""
        found: dict[str, tuple[str, int]] = {}
        for group, entries in sorted(self.groups.items()):
            if match := PLUGINS.fullmatch(group):
                api = int(match[1])
                found |= {n: (m, api) for n, m in entries.items() if api == API or n not in found}
        return found


@functools.cache
def installed_entry_points() -> tuple[EntryPoints, ...]:
    """Return the entry points of the distributions with plugins: zoo's own, then others by name."""
    # ``importlib.metadata`` reads them as well, but importing it takes half the time of ``zoo
    # --help``, which lists the commands of plugins.
    distributions: dict[str, EntryPoints] = {}
    for folder in _metadata_folders():
        match = _FOLDER.fullmatch(os.path.basename(folder))
        groups = _parse(_read(folder, "entry_points.txt"))
        if match and any(group.partition(".")[0] == "zoo" for group in groups):
            name = re.sub(r"[-_.]+", "-", match[1]).lower()
            # the folder of a source tree lacks the version
            stated = None if match[2] else _VERSION.search(_read(folder, "PKG-INFO"))
            version = match[2] or (stated[1] if stated else "")
            # the first on the path is imported, as importlib.metadata also finds it
            distributions.setdefault(name, EntryPoints(name, version, groups))
    return tuple(
        distributions[n] for n in sorted(distributions, key=lambda n: (n != DISTRIBUTION, n))
    )


def contested_plugins() -> set[str]:
    """Return the names of plugins that several distributions have, or zoo and a third party."""
    names = Counter(name for points in installed_entry_points() for name in points.plugins())
    return {name for name, count in names.items() if count > 1}


def _metadata_folders() -> Iterator[str]:
    """Yield the folders of metadata on the module search path, in its order."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = sorted(name for name in os.listdir(folder or ".") if name.endswith("-info"))
        except OSError:  # an archive, an import hook, or a directory that is not there
            continue
        yield from (os.path.join(folder, name) for name in names)


def _read(folder: str, name: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _parse(text: str) -> dict[str, dict[str, str]]:
    """Return group -> name -> value."""
    groups: dict[str, dict[str, str]] = {}
    entries: dict[str, str] = {}
    if "[zoo" not in text:  # most distributions have no plugin
        return {}
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            entries = groups.setdefault(line.strip("[]"), {})
        elif "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            entries[name.strip()] = value.strip()
    return groups
