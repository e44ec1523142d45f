"""What becomes of each key of a checkpoint's configuration files."""

# The room that reads a file declares a table of its keys, reads the file by it, and gives the table
# to ``tools/configuration_keys.py``, which writes docs/configuration-files.md.

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Treatment(StrEnum):
    """What a conversion does with a key."""

    HONOURED = "honoured"  # changes what our commands compute, and is written back
    CARRIED = "carried"  # does not change what our commands compute; kept and written back
    WRITTEN_ANEW = "written anew"  # describes the files, and is written from their contents
    REFUSED = "refused"  # would change results in a way that is not implemented: an error names it


@dataclass(frozen=True)
class FileKey:
    """A key's treatment, and the reason that docs/configuration-files.md gives for it."""

    treatment: Treatment
    reason: str


FileKeys = Mapping[str, FileKey]


@dataclass(frozen=True)
class Precedence:
    """Keys that state one fact, and which of them holds where they differ."""

    fact: str  # what the keys state, a heading of docs/configuration-files.md's table
    keys: tuple[str, ...]  # each with its file if there are several; the first one wins
    rule: str  # what the order depends on, or what becomes of a contradiction


def honoured(reason: str) -> FileKey:
    """Return the entry of a key that changes what our commands compute."""
    return FileKey(Treatment.HONOURED, reason)


def carried(reason: str) -> FileKey:
    """Return the entry of a key that is kept and written back."""
    return FileKey(Treatment.CARRIED, reason)


def written_anew(reason: str) -> FileKey:
    """Return the entry of a key that is not kept, since it is derived from what is written."""
    return FileKey(Treatment.WRITTEN_ANEW, reason)


def refused(reason: str) -> FileKey:
    """Return the entry of a key that stops a conversion with some of its values."""
    return FileKey(Treatment.REFUSED, reason)
