"""What public copies of the Hub's pages say of the checkpoints that the registry names.

Each file of the folder ``published`` holds a map from a registry name to what the repository's
pages say: these are facts of their publishers, typed in from the pages named beside them, and
nothing in them comes from the registry or from this project. A fact that no page shows is left out.
"""

from pathlib import Path
from typing import Any

import msgspec
import yaml

FOLDER = Path(__file__).parent / "published"
UNITS = {"Bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "M": 10**6}
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}


class Published(msgspec.Struct, forbid_unknown_fields=True):
    """One repository, as its pages describe it.

    Attributes:
        pages: where that is to be seen: the addresses, with the revision where they have one.
        licence: the licence tag, ``none`` where a page that would show one does not.
        files: file name -> size, as the page writes it, such as ``440 MB``.
        cut: whether the copy of that page ends before the page, which is in the order of names.
        dtype: of the weights, where a page says it: a storage's name, or the configuration.
        config: ``config.json``.
        parameters: how many there are, as the page writes it, such as ``93.6 M``.
        more: parameters that the weights file holds beyond those of the row; ``why`` says which.
        why: what these are.
    """

    pages: tuple[str, ...]
    licence: str | None = None
    files: dict[str, str] = {}
    cut: bool = False
    dtype: str = "float32"
    config: dict[str, Any] | None = None
    parameters: str | None = None
    more: int = 0
    why: str | None = None


def published() -> dict[str, Published]:
    """Read all of them by registry name."""
    found: dict[str, Published] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        read = msgspec.convert(yaml.safe_load(path.read_text("utf-8")), dict[str, Published])
        assert not found.keys() & read.keys(), "told twice"
        found |= read
    return found


def span(size: str) -> tuple[float, float]:
    """Return between which numbers a rounded one lies: the bytes of ``440 MB``, say."""
    number, unit = size.split()
    half = 0.5 * 10 ** -len(number.partition(".")[2])
    return (float(number) - half) * UNITS[unit], (float(number) + half) * UNITS[unit]
