"""The directory of known plugins, ``directory.yaml``: what they are, and where to find them."""

import functools
import shlex
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import msgspec

from zoo.io.yaml import parse_yaml

FILE = "directory.yaml"
EXAMPLES = "examples/"  # sources that begin so are in the source of zoo


class KnownPlugin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Entry of the directory."""

    distribution: str
    summary: str
    model_types: tuple[str, ...] = ()
    source: str  # Package, URL, or directory in the source of zoo.

    @property
    def install_command(self) -> str:
        """Command that installs it, in the source of zoo if it is there."""
        source = self.source
        if source.startswith(EXAMPLES):
            tree = Path(__file__).parents[2]
            source = str(tree / source) if (tree / source).is_dir() else f"./{source}"
        return shlex.join(["zoo", "plugins", "install", source])

    @property
    def remedy(self) -> str:
        """What to do to get it."""
        if "./" in self.install_command:
            return f"`{self.install_command}` in the source of zoo"
        return f"`{self.install_command}`"


@functools.cache
def known_plugins() -> Mapping[str, KnownPlugin]:
    """Return the plugins of the directory by name."""
    text = (resources.files("zoo.plugins") / FILE).read_text("utf-8")
    return msgspec.convert(parse_yaml(text, FILE), dict[str, KnownPlugin])


def search(word: str = "") -> dict[str, KnownPlugin]:
    """Return the plugins whose name, distribution, model types or summary contain a word."""
    return {
        name: plugin
        for name, plugin in known_plugins().items()
        if word.lower()
        in " ".join([name, plugin.distribution, *plugin.model_types, plugin.summary]).lower()
    }


def plugin_of_model_type(model_type: str) -> KnownPlugin | None:
    """Return the plugin of the directory that has a ``model_type``."""
    every = known_plugins().values()
    return next((plugin for plugin in every if model_type in plugin.model_types), None)
