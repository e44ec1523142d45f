"""``python -m tests.fuzz.table``: write the tables of docs/reliability.md from committed results.

Every figure is from a file in tests/results, which a test or the fuzzer wrote. A promise without
such a file is marked in the table.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.limits import limits_table
from tests.fuzz.case import CPU_SECONDS, HANGS
from tests.reporting import PROMISES

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "tests" / "results"
PAGE = ROOT / "docs" / "reliability.md"
READERS = "readers.json"
LIMITS = "limits.json"
CHECKS = "checks.json"
SIZES = "sizes.json"
BEGIN = "<!-- {}: written by python -m tests.fuzz.table -->"
END = "<!-- end of {} -->"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text("utf-8"), RESULTS), "utf-8")


def page(text: str, results: Path) -> str:
    """Return the page with updated tables."""
    tables = (
        ("promises", promises),
        ("limits", limits),
        ("readers", readers),
        ("sizes", sizes),
    )
    for name, rows in ((name, make(results)) for name, make in tables):
        begin = BEGIN.format(name)
        end = END.format(name)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = "\n".join([f"{before}{begin}", *rows, f"{end}{after}"])
    return text


def promises(results: Path) -> list[str]:
    """Return the table of promises."""
    rows = []
    for promise, text in PROMISES.items():
        files = sorted(results.glob(f"{promise}.*.json"))
        tests = [json.loads(file.read_text("utf-8")) for file in files]
        rows.append((text, *_figures(tests)))
    return _table(("promise", "how it is tested", "cases", "failures", "measured"), rows)


def _figures(tests: Sequence[Mapping[str, Any]]) -> tuple[str, str, str, str]:
    if not tests:
        return "no result yet", "", "", ""
    functions = (test["command"].partition("[")[0] for test in tests)  # without parameters
    commands = "<br>".join(dict.fromkeys(f"`{function}`" for function in functions))
    measured = "<br>".join(dict.fromkeys(test["measured"] for test in tests if test["measured"]))
    cases, failures = (sum(test[key] for test in tests) for key in ("cases", "failures"))
    return commands, f"{cases:,}", f"{failures:,}", measured


def limits(results: Path) -> list[str]:
    """Return the table of large inputs, from the last run of ``benchmarks.limits``."""
    record = json.loads((results / LIMITS).read_text("utf-8"))
    return limits_table(record["results"]).splitlines()


def readers(results: Path) -> list[str]:
    """Return the table of readers, from the last campaign."""
    path = results / READERS
    figures = json.loads(path.read_text("utf-8")) if path.exists() else {}
    rows = [
        (
            f"`{name}`",
            f"{row['cases']:,}",
            f"{row['accepted']:,}",
            f"{row['refused']:,}",
            f"{row['failures']:,}",
            f"{row['slowest']:.1f} s",
            f"{row['peak']} MB",
            f"{row['checks']:,}" if "checks" in row else "",
            f"{row['at_one_check']:,}" if "checks" in row else "",
        )
        for name, row in figures.items()
    ]
    header = ("reader", "cases", "equal values", "refused", "failures", "most CPU", "most memory")
    return _table((*header, "checks that refused", "most at one"), rows)


def sizes(results: Path) -> list[str]:
    """Return the table of bytes in, memory and seconds out, from ``tests.fuzz.sizes``."""
    path = results / SIZES
    figures = json.loads(path.read_text("utf-8")) if path.exists() else {}
    rows = []
    for name, kinds in figures.items():
        cells = [f"`{name}`"]
        for kind in ("declared", "grown"):
            row = kinds.get(kind)
            values = ("", "", "")
            if row is not None:
                seconds = f"{row['seconds']:.1f} s"
                if row["failure"] == HANGS:
                    seconds = f"more than {CPU_SECONDS} s"
                values = (f"{row['size']:,}", f"{row['peak'] / 1e6:.0f} MB", seconds)
            cells += values
        rows.append(cells)
    header = ("bytes that declare much", "memory", "CPU", "bytes that hold much", "memory", "CPU")
    return _table(("reader", *header), rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


if __name__ == "__main__":
    main()
