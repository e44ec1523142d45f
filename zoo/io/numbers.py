"""Numbers in text from files, options and the environment: ASCII decimals."""

import math
import os
import re
import struct

from zoo.errors import UsageError
from zoo.io.limits import MAX_INTEGER_DIGITS

_INTEGER = re.compile(rf"[-+]?[0-9]{{1,{MAX_INTEGER_DIGITS}}}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def is_number(name: str) -> bool:
    """Return whether a name has ASCII digits only, as the number of a column does."""
    return name.isascii() and name.isdecimal()


def parse_int(text: str) -> int | None:
    """Return the integer that a text is, such as ``-12``, or ``None``.

    Python's ``int()`` and ``float()`` also read ``1_000``, digits of other scripts, spaces,
    ``nan`` and ``infinity``.
    """
    return int(text) if _INTEGER.fullmatch(text) else None


def parse_float(text: str) -> float | None:
    """Return the finite number that a text is, such as ``1.5`` or ``2e-3``, or ``None``."""
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else None


def format_count(value: float) -> str:
    """Format a count with about three digits: ``21.3 M``; 0 is an empty string."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            scaled = value / (1e3 if letter == "k" else size)
            return f"{scaled:.{max(0, 2 - int(math.log10(scaled)))}f} {letter}"
    return f"{value:,.0f}" if value else ""


def format_bytes(value: float) -> str:
    """Format a number of bytes with about three digits: ``438 MB``, ``9.2 kB``, ``12 B``."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            scaled = value / size
            return f"{scaled:.{max(0, 2 - int(math.log10(scaled)))}f} {unit}"
    return f"{value:,.0f} B"


def format_percent(share: float) -> str:
    """Format a share with one decimal place, or two digits of a smaller one: ``1.0%``."""
    return f"{100 * share:.2g}%" if 0 < share < 0.001 else f"{share:.1%}"


def fits_float32(number: float) -> bool:
    """Return whether a number is finite in float32."""
    try:
        struct.pack("<f", number)
    except OverflowError:
        return False
    return math.isfinite(number)


def int_from_environment(name: str, default: int) -> int:
    """Return an environment variable that is an integer."""
    text = os.environ.get(name)
    number = default if text is None else parse_int(text)
    if number is None:
        raise UsageError(f"{name} is {text!r}, which is not an integer", f"unset or correct {name}")
    return number
