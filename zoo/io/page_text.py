"""Text from models, data and files in pages: one function for each kind of page.

Names of repositories, labels, prompts, settings and file names come from strangers. In a page they
are text, and never headings, links, HTML, code to copy or control characters. ``zoo.io.terminal``
does the same for a terminal. Cells of CSV and TSV are values that programs read back, so they are
quoted by ``zoo.io.output.tables`` and change only with ``--excel-safe``. Labels and tokens in a
GGUF file are values too; its name and its licence are text.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from zoo.io.terminal import escape_controls

# Right-to-left text needs direction marks; overrides are escaped.
MARKS = "\u061c\u200e\u200f"
# Text that Markdown shows as it is. It does not begin like an item of a list, and has neither the
# signs of links, mathematics and mentions nor an address that becomes a link by itself.
_PLAIN = re.compile(r"[-+]?\w[\w .,:;()%/+='\"?!-]*")
_STRUCTURE = re.compile(r"://|\bwww\.|^\d+[.)](\s|$)|(?<!\w)_|_(?!\w)|__", re.IGNORECASE)
_HUB_REPO = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


class Markdown(str):
    """Text that is Markdown already: tables write it as it is."""

    __slots__ = ()


def html_text(text: str) -> str:
    """Return text for HTML and SVG."""
    return escape(escape_controls(text, keep=f"\n\t{MARKS}"))


def readable_values(value: Any) -> Any:
    """Return a nested value with control characters escaped in all texts and keys."""
    if isinstance(value, str):
        return escape_controls(value, keep=f"\n\t{MARKS}")
    if isinstance(value, Mapping):
        return {readable_values(key): readable_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [readable_values(item) for item in value]
    return value


def one_line(text: str) -> str:
    """Return text on one line, without control characters."""
    return escape_controls(" ".join(text.split()))


def curve_tag(name: str) -> str:
    """Return a name of a curve that TensorBoard, W&B and MLflow all accept and show as it is."""
    # MLflow refuses other characters: mlflow/utils/validation.py, without the colon, which it
    # refuses on Windows.
    return re.sub(r"[^\w.\-/ ]", lambda match: f"_x{ord(match[0]):x}_", one_line(name))


def markdown_text(text: str) -> Markdown:
    """Return text for a line or a cell: as it is, or as code where Markdown has other plans."""
    line = one_line(text)
    if not line:
        return Markdown("")
    if _PLAIN.fullmatch(line) and not _STRUCTURE.search(line):
        return Markdown(line)
    return markdown_code(line)


def markdown_code(text: str) -> Markdown:
    """Return text as inline code, in which Markdown has no other signs than backticks."""
    # A table ends a cell at a bar, also within code: bars are outside of it, as an entity.
    return Markdown("&#124;".join(map(_code_span, one_line(text).split("|"))))


def _code_span(text: str) -> str:
    if not text:
        return ""
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def hub_link(repo: str) -> Markdown:
    """Return a link to a repository of the Hub; a name that none can have is only text."""
    if not is_hub_repo(repo):
        return markdown_text(repo)
    name = repo.replace("_", "\\_")
    return Markdown(f"[{name}](https://huggingface.co/{repo})")


def is_hub_repo(repo: str) -> bool:
    """Return whether a repository of the Hub can have a name."""
    return _HUB_REPO.fullmatch(repo) is not None


def markdown_block(language: str, lines: Sequence[str]) -> list[str]:
    """Return the lines of a code block."""
    safe_lines = [escape_controls(line) for line in lines]
    fence = "`" * max(3, *(_longest_run(line) + 1 for line in safe_lines), 3)
    return [f"{fence}{language}", *safe_lines, fence]


def markdown_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table; cells are text, unless they are ``Markdown``."""
    yield "|" + "".join(f" {cell} |" if cell else " |" for cell in map(_cell, header))
    yield "|" + " --- |" * len(header)
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(text: str) -> str:
    return text if isinstance(text, Markdown) else markdown_text(text)


def markdown_front(metadata: Mapping[str, Any]) -> list[str]:
    """Return the lines of the YAML at the top of a page."""
    import yaml

    values = {name: _front_value(value) for name, value in metadata.items()}
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True) if values else ""
    return ["---", *text.splitlines(), "---"]


def _front_value(value: Any) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, Mapping):
        return {_front_value(key): _front_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_front_value(item) for item in value]
    return value


def shell_line(words: Sequence[str]) -> str:
    """Return a command for a shell, in which each word is one word."""
    return shlex.join(one_line(word) for word in words)


def _longest_run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)
