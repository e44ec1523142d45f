"""Lengths of the example plugins, as the table of docs/plugins.md.

    python -m benchmarks.plugin_lengths

Lines of Python without blank lines and comments.
"""

from pathlib import Path

from benchmarks._common import table
from benchmarks.house import code_lines

EXAMPLES = Path(__file__).parents[1] / "examples" / "plugins"


def lengths() -> str:
    """Return a table: lines of the package and of the tests of each example."""
    rows = []
    for project in sorted(
        path for path in EXAMPLES.iterdir() if (path / "pyproject.toml").exists()
    ):
        package, tests = (
            sum(code_lines(path)[0] for path in project.glob(pattern))
            for pattern in ("zoo_*/**/*.py", "tests/**/*.py")
        )
        rows.append((project.name, str(package), str(tests)))
    return table(("plugin", "lines", "lines of tests"), rows)


if __name__ == "__main__":
    print(lengths())
