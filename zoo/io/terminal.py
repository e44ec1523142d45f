"""Text for a terminal: untrusted text is escaped, and long lines are broken at words."""

import os
import re
import textwrap
from typing import TextIO

MIN_COLUMNS = 40  # Text for a narrower terminal is not broken further.

# Characters that control a terminal, or make one line look like another: control characters (C0,
# DEL, C1), line and paragraph separators, marks and overrides of the writing direction, and lone
# surrogates, which represent bytes of a file name that are not UTF-8.
CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
# A command in backticks stays on one line so that it can be copied.
COMMAND = re.compile("`[^`]*`")
# The part of a line before its second column.
SECOND_COLUMN = re.compile(r" *\S.*? {2,}(?=\S)")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str, *, keep: str = "") -> str:
    """Replace control characters by escape sequences of Python strings."""
    return CONTROLS.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def escape_json(text: str) -> str:
    r"""Replace control characters in JSON text by ``\uXXXX``; the decoded value stays the same."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def terminal_width(stream: TextIO | None) -> int | None:
    """Return the number of columns of a terminal, or ``None`` if the stream is something else.

    ``$COLUMNS`` takes precedence, as in other programs.
    """
    setting = os.environ.get("COLUMNS", "")
    if setting.isascii() and setting.isdecimal() and int(setting[:9]) > 0:
        return max(int(setting[:9]), MIN_COLUMNS)
    if not stream:
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):  # It is not a terminal, or has no descriptor.
        return None
    return max(columns, MIN_COLUMNS) if columns else None


def wrap(text: str, columns: int | None, *, indent: str | None = None) -> str:
    """Break a line at words; words, and commands in backticks, that fit in a line stay whole.

    ``indent`` begins the lines after the first. By default it reaches the second column of a line
    such as ``name value``, or else is two spaces more than the text's.
    """
    if columns is None or len(text) <= columns:
        return text
    if indent is None:
        start = SECOND_COLUMN.match(text)
        width = start.end() if start else columns
        if width > columns // 3:
            width = len(text) - len(text.lstrip(" ")) + 2
        indent = " " * width
    limit = columns - len(indent)

    def glue(match: re.Match[str]) -> str:
        """Replace the spaces of a command that fits in a line."""
        return match[0].replace(" ", "\0") if len(match[0]) <= limit else match[0]

    glued_text = COMMAND.sub(glue, text)
    # The first word is never a line of its own.
    glued_text = re.sub("^(error|warning): ", "\\1:\0", glued_text)
    lines = textwrap.wrap(
        glued_text,
        columns,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )
    return "\n".join(lines).replace("\0", " ")


def _escape(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
