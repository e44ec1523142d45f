"""Draw docs/figures/ratios.svg and the table of docs/results.md from benchmarks/results.json.

usage: python -m tools.benchmark_results [--check]

``--check`` writes nothing, and exits with 1 if a file is not what would be written.
"""

import json
import math
import sys
from html import escape
from pathlib import Path
from typing import Any

from tools.figures.drawing import svg

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
CHART = ROOT / "docs" / "figures" / "ratios.svg"
PAGE = ROOT / "docs" / "results.md"
BEGIN = "<!-- benchmarks: begin -->"
END = "<!-- benchmarks: end -->"

ROW = 34
LEFT = 300
RIGHT = 690
TOP = 46
TICKS = (1, 2, 5, 10, 20, 50)


def ratio(bar: dict[str, Any]) -> float:
    """Return how many times as good as the peer a result is."""
    quotient: float = bar["zoo_value"] / bar["peer_value"]
    return quotient if bar["higher_is_better"] else 1 / quotient


def chart(rows: list[dict[str, Any]]) -> str:
    """Return horizontal bars of all rows that have one, the largest first, on a log scale."""
    bars = sorted((bar for row in rows for bar in row.get("chart", ())), key=ratio, reverse=True)
    bottom = TOP + ROW * len(bars)

    def across(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * math.log(value) / math.log(TICKS[-1])

    parts = ['<text class="title" x="16" y="24">times as fast, or as small, as the peer</text>']
    for tick in TICKS:
        x = across(tick)
        kind = "one" if tick == 1 else "grid"
        parts.append(
            f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
            f'<text class="muted middle" x="{x:.1f}" y="{bottom + 16}">{tick}</text>'
        )
    for number, bar in enumerate(bars):
        y = TOP + ROW * number
        end = across(ratio(bar))
        parts.append(
            f'<text class="end" x="{LEFT - 10}" y="{y + 15}">{escape(bar["task"])}</text>'
            f'<text class="muted end" x="{LEFT - 10}" y="{y + 28}">{escape(bar["peer"])}</text>'
            f'<rect class="bar" x="{LEFT}" y="{y + 7}" width="{end - LEFT:.1f}" height="20" '
            f'rx="3"/>'
            f'<text x="{end + 6:.1f}" y="{y + 22}">{ratio(bar):.2g}</text>'
        )
    label = "Ratios of zoo and its peers: " + "; ".join(
        f"{bar['task']} {ratio(bar):.2g} times {bar['peer']}" for bar in bars
    )
    return svg("".join(parts), bottom + 28, label)


def table(results: dict[str, Any]) -> str:
    """Return all rows in Markdown, with the machine and versions."""
    lines = [
        f"Measured on {results['machine']}; {results['versions']}.",
        "",
        "| benchmark | zoo, median | peer, median | ratio | script |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    keys = ("benchmark", "zoo", "peer", "ratio", "script")
    lines += [f"| {' | '.join(row[key] for key in keys)} |" for row in results["rows"]]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write the chart and the table, or compare them."""
    results = json.loads(RESULTS.read_text("utf-8"))
    page = PAGE.read_text("utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    files = {
        CHART: chart(results["rows"]),
        PAGE: f"{before}{BEGIN}\n{table(results)}\n{END}{after}",
    }
    if arguments == ["--check"]:
        return int(any(path.read_text("utf-8") != text for path, text in files.items()))
    for path, text in files.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
