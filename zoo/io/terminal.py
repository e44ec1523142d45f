"""Escaping of untrusted text for a terminal."""

import re

# Characters that control a terminal, or make one line look like another: control characters (C0,
# DEL, C1), line and paragraph separators, marks and overrides of the writing direction, and lone
# surrogates, which represent bytes of a file name that are not UTF-8.
CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str, *, keep: str = "") -> str:
    """Replace control characters by escape sequences of Python strings."""
    return CONTROLS.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def escape_json(text: str) -> str:
    r"""Replace control characters in JSON text by ``\uXXXX``; the decoded value stays the same."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(character: str) -> str:
    if short := _SHORT.get(character):
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
