"""The one check of sizes that files declare, before memory is allocated for them.

Every reader passes each count, rank, id and length through ``check_size`` before it allocates
memory, starts a loop or builds a module of that size. A limit alone is not enough: a file of 1 KB
can declare a vocabulary that is sound for a file of 100 MB. A reader therefore also says how many
entries its file has room for.
"""

import os

from zoo.errors import VerificationError


def check_size(
    location: "str | os.PathLike[str]",
    quantity: str,
    value: object,
    limit: int,
    *,
    least: int = 0,
    room: int | None = None,
    hint: str = "",
) -> int:
    """Check a size that a file declares, and return it.

    Args:
        location: file, or key of a file, that declares the size.
        quantity: what is counted, such as ``number of tensors``.
        value: declared size, of any type: only an integer is a size.
        limit: largest accepted size, a constant of ``zoo.io.limits``.
        least: smallest accepted size.
        room: number of entries that the file has room for, such as its length in bytes if an entry
            takes at least one; ``None`` if the entries are not in the file.
        hint: what to do; by default, to fetch the file again, or not to use it.

    Raises:
        VerificationError: the value is not an integer, or outside of its bounds.
    """
    problem = size_problem(quantity, value, limit, least=least, room=room)
    if problem is not None:
        raise VerificationError(f"{location}: {problem}", hint or _remedy(value, limit))
    assert isinstance(value, int), "size_problem reports any other type"
    return value


def size_problem(
    quantity: str, value: object, limit: int, *, least: int = 0, room: int | None = None
) -> str | None:
    """Return what is wrong with a size, or ``None``; for the arguments, see ``check_size``."""
    if not isinstance(value, int) or isinstance(value, bool):
        return f"{quantity} is {value!r:.100}, which is not a whole number"
    if value < least:
        return f"{quantity} is {value:,}, and at least {least:,} is needed"
    if value > limit:
        return f"{quantity} is {value:,}, and at most {limit:,} is accepted"
    if room is not None and value > room:
        return f"{quantity} is {value:,}, and the file has room for at most {room:,}"
    return None


def _remedy(value: object, limit: int) -> str:
    if isinstance(value, int) and value > limit:
        return "do not use this file, unless you know why it is so large"
    return "fetch it again"
