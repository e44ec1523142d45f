"""Model references: what the text after a command means, and how its files get here."""

from zoo.references.checkpoint import resolve_checkpoint
from zoo.references.reference import Reference, resolve, stored_names
from zoo.references.source import Source, obtain

__all__ = ["Reference", "Source", "obtain", "resolve", "resolve_checkpoint", "stored_names"]
