"""What becomes of each key of a checkpoint's configuration files."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Treatment(StrEnum):
    """What a conversion does with a key."""

    HONOURED = "honoured"  # changes what our commands compute, and is written back
    CARRIED = "carried"  # does not change what our commands compute; kept and written back
    DROPPED = "dropped"  # has no meaning for results: provenance, or an implementation choice
    REFUSED = "refused"  # would change results in a way that is not implemented: an error names it


@dataclass(frozen=True)
class FileKey:
    """A key's treatment, and the reason that docs/configuration-files.md gives for it."""

    treatment: Treatment
    reason: str


FileKeys = Mapping[str, FileKey]


def honoured(reason: str) -> FileKey:
    """Return the entry of a key that changes what our commands compute."""
    return FileKey(Treatment.HONOURED, reason)


def carried(reason: str) -> FileKey:
    """Return the entry of a key that is kept and written back."""
    return FileKey(Treatment.CARRIED, reason)


def dropped(reason: str) -> FileKey:
    """Return the entry of a key without meaning for results."""
    return FileKey(Treatment.DROPPED, reason)


def refused(reason: str) -> FileKey:
    """Return the entry of a key whose values other than the default stop a conversion."""
    return FileKey(Treatment.REFUSED, reason)
