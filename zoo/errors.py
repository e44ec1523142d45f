"""Exceptions shown to users, each with a one-line message, a remedy and an exit code."""

from collections.abc import Sequence
from typing import ClassVar

# Folder of this machine -> the place elsewhere that it is a copy of, such as ``s3://bucket/``.
_PLACES: dict[str, str] = {}


def name_place(folder: str, place: str) -> None:
    """Show a folder in messages and records as the place elsewhere that it is a copy of."""
    _PLACES[folder] = place


def with_places(text: str) -> str:
    """Return a text with the names of places in place of those of their copies."""
    for folder, place in _PLACES.items():
        if folder in text:
            text = text.replace(folder, place)
    return text


class ZooError(Exception):
    """Base class of the errors of zoo, shown as one line: message, then remedy.

    Args:
        what: message, with the file, entry or name it concerns.
        hint: remedy; may be empty.
        details: further lines, such as one for each row that the message counts.

    Attributes:
        exit_code: exit code of the command that it ends.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, hint: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(what, hint)
        self.what = with_places(what)
        self.hint = with_places(hint)
        self.details = [with_places(line) for line in details]

    def __str__(self) -> str:
        line = f"{self.what}; {self.hint}" if self.hint else self.what
        return "\n  ".join((line, *self.details))


class UsageError(ZooError):
    """Wrong usage: an unknown name, an option that does not apply."""

    exit_code = 2


class VerificationError(ZooError):
    """A failed check: the mapping of tensors, a digest, parity, the export gate."""

    exit_code = 3


class NonFiniteError(VerificationError):
    """NaN or infinity in the output of a model.

    Args:
        what: message that names the input and the model.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what, "try --dtype float32, and check the weights with `zoo verify`")


class SourceError(ZooError):
    """A source that is not available: missing, gated, offline, or the network failed."""

    exit_code = 4


class PluginError(ZooError):
    """A broken plugin, or two plugins with the same name."""

    exit_code = 5


class Interrupted(ZooError):
    """Work that a signal interrupted and that can be resumed."""

    exit_code = 130


def first_names(names: "list[str] | tuple[str, ...]", count: int = 6) -> str:
    """Return ``a, b and 4 more``: the first of several names, and the number of the others."""
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


LONG_NAME = 9  # letters


def did_you_mean(name: str, known: "list[str] | tuple[str, ...]", count: int = 3) -> str:
    """Return ``did you mean a, b or c?`` with at most ``count`` close names; empty without any.

    The hyphens before an option do not make it like another one.
    """
    import difflib

    folded = {k.lower().lstrip("-"): k for k in sorted(known)}
    name = name.lstrip("-")
    # Below this similarity, the name of another architecture is taken for a typing error: a few
    # wrong letters change a long name less than a short one.
    cutoff = 0.6 if len(name) < LONG_NAME else 0.8
    close = [folded[k] for k in difflib.get_close_matches(name.lower(), folded, count, cutoff)]
    if not close:
        return ""
    return "did you mean " + " or ".join(filter(None, [", ".join(close[:-1]), close[-1]])) + "?"
