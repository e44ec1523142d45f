"""Facts about the checkpoints of the registry, from public copies of the Hub's pages.

Each file of the directory ``published`` maps registry names to facts on the repository's pages.
They were copied from the listed pages, independently of the registry and this project. Facts that
no page shows are omitted.
"""

from pathlib import Path
from typing import Any

import msgspec
import yaml

FOLDER = Path(__file__).parent / "published"
UNITS = {"Bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "M": 10**6}
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}


class Published(msgspec.Struct, forbid_unknown_fields=True):
    """Facts about one repository.

    Attributes:
        pages: addresses of the pages, with a revision if they have one.
        licence: licence tag; ``none`` if a page has none.
        files: file name -> size as on the page, such as ``440 MB``.
        cut: the copy of the page, sorted by name, is incomplete.
        dtype: dtype of the weights: a storage class, or that of the configuration.
        config: contents of ``config.json``.
        parameters: number of parameters as on the page, such as ``93.6 M``.
        more: number of parameters in the file in addition to those of the entry; see ``why``.
        why: description of the additional parameters.
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


def published(folder: Path = FOLDER) -> dict[str, Published]:
    """Return registry name -> facts."""
    facts: dict[str, Published] = {}
    for path in sorted(folder.glob("*.yaml")):
        read = msgspec.convert(yaml.safe_load(path.read_text("utf-8")), dict[str, Published])
        assert not facts.keys() & read.keys(), "duplicate names"
        facts |= read
    return facts


def span(size: str) -> tuple[float, float]:
    """Return the range of numbers that round to a text such as ``440 MB``."""
    number, unit = size.split()
    half = 0.5 * 10 ** -len(number.partition(".")[2])
    return (float(number) - half) * UNITS[unit], (float(number) + half) * UNITS[unit]
