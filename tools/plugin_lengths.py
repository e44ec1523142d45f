"""Lengths of the example plugins, as the table of docs/plugins.md.

    python -m tools.plugin_lengths

Lines of Python without blank lines and comments.
"""

import io
import tokenize
from pathlib import Path

from benchmarks._common import table

EXAMPLES = Path(__file__).parents[1] / "examples" / "plugins"


def lengths() -> dict[str, tuple[int, int]]:
    """Return example -> lines of its package, and of its tests."""
    projects = [path for path in sorted(EXAMPLES.iterdir()) if (path / "pyproject.toml").exists()]
    return {
        project.name: (_lines(project, "zoo_*/**/*.py"), _lines(project, "tests/**/*.py"))
        for project in projects
    }


def _lines(project: Path, pattern: str) -> int:
    return sum(map(code_lines, project.glob(pattern)))


def code_lines(path: Path) -> int:
    """Return the number of lines with code."""
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type not in {*layout, tokenize.ENDMARKER}:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


if __name__ == "__main__":
    rows = [(name, *map(str, counts)) for name, counts in lengths().items()]
    print(table(("plugin", "lines", "lines of tests"), rows))
