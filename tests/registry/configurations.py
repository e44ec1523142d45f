"""Configurations of published checkpoints, with all keys of their ``config.json``.

Each file of the directory ``configurations`` is a list of distinct sets of keys, with the
checkpoints that have them. Keys and settings are those of the publishers' files; sizes, such as
widths and numbers of layers, are replaced with small ones.
"""

from pathlib import Path
from typing import Any

import msgspec
import yaml

FOLDER = Path(__file__).parent / "configurations"


class Configuration(msgspec.Struct, forbid_unknown_fields=True):
    """One set of keys.

    Attributes:
        checkpoints: repositories whose configurations have these keys.
        config: contents of ``config.json``, with small sizes.
        architecture: class of the weights, where the configuration does not name it or the
            reference library names it differently.
        reference: keys that the reference library reads by other names, or not from this file.
    """

    checkpoints: tuple[str, ...]
    config: dict[str, Any]
    architecture: str | None = None
    reference: dict[str, Any] = {}

    @property
    def class_name(self) -> str:
        """Name of the reference library's class."""
        return self.architecture or str(self.config["architectures"][0])


def published_configurations(folder: Path = FOLDER) -> tuple[Configuration, ...]:
    """Return all sets of keys."""
    configurations: list[Configuration] = []
    for path in sorted(folder.glob("*.yaml")):
        document = yaml.safe_load(path.read_text("utf-8"))
        configurations += msgspec.convert(document, list[Configuration])
    return tuple(configurations)
