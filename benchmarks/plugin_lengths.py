"""Lengths of the example plugins, as the table of docs/plugins.md.

    python -m benchmarks.plugin_lengths

Lines of Python without blank lines and comments.
"""

from pathlib import Path

from benchmarks._common import table
from benchmarks.house import code_lines

EXAMPLES = Path(__file__).parents[1] / "examples" / "plugins"


def lengths() -> dict[str, tuple[int, int]]:
    """Return example -> lines of its package, and of its tests."""
    projects = [path for path in sorted(EXAMPLES.iterdir()) if (path / "pyproject.toml").exists()]
    return {
        project.name: (_lines(project, "zoo_*/**/*.py"), _lines(project, "tests/**/*.py"))
        for project in projects
    }


def _lines(project: Path, pattern: str) -> int:
    return sum(code_lines(path)[0] for path in project.glob(pattern))


if __name__ == "__main__":
    rows = [(name, *map(str, counts)) for name, counts in lengths().items()]
    print(table(("plugin", "lines", "lines of tests"), rows))
