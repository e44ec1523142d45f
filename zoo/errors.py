"""The errors a user can meet. Each has an exit code, one line, and a remedy."""

from typing import ClassVar


class ZooError(Exception):
    """An error to show as one line: what went wrong and where, then what to do about it.

    Args:
        what: what is wrong, with the file, entry or name that it concerns.
        hint: what the reader can do. May be empty where ``what`` says it already.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}; {self.hint}" if self.hint else self.what


class UsageError(ZooError):
    """The request itself is wrong: an unknown name, an option that does not apply."""

    exit_code = 2


class VerificationError(ZooError):
    """A check failed: the account of tensors, a digest, parity, an export gate."""

    exit_code = 3


class NonFiniteError(VerificationError):
    """A model returned NaN or infinity.

    Args:
        what: which input it was and what of the model.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what, "try --dtype float32, and check the weights with `zoo verify`")


class SourceError(ZooError):
    """The source is not available: missing, offline, gated, or the network failed."""

    exit_code = 4


class PluginError(ZooError):
    """A plugin is broken, or two claim one name."""

    exit_code = 5


class Interrupted(ZooError):
    """A signal ended work that can go on from what was saved."""

    exit_code = 130


def did_you_mean(name: str, known: "list[str] | tuple[str, ...]", count: int = 3) -> str:
    """Say which known names come closest, as a remedy: ``did you mean a, b or c?``."""
    import difflib

    folded = {k.lower(): k for k in sorted(known)}
    close = [folded[k] for k in difflib.get_close_matches(name.lower(), folded, count, 0.5)]
    if not close:
        return ""
    return "did you mean " + " or ".join(filter(None, [", ".join(close[:-1]), close[-1]])) + "?"
