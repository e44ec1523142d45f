"""Draw docs/figures/ratios.svg and the table of docs/results.md from benchmarks/results.json.

usage: python -m tools.benchmark_results [--check | --compare OLD.json]

``--check`` writes nothing, and exits with 1 if a file is not what would be written. ``--compare``
writes nothing either: it lists the ratios that fell since an older ``results.json``, with the
``reason`` of their row, and exits with 1 if one of them has none.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping
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
NOISE = 0.03  # Fraction by which a ratio may fall without being listed.


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


def ratios(results: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Return task and peer -> how many times as good as the peer the result is."""
    ratio_by_bar = {}
    for row in results["rows"]:
        for bar in row.get("chart", ()):
            ratio_by_bar[bar["task"], bar["peer"]] = ratio(bar)
    return ratio_by_bar


def reasons(results: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return task and peer -> why the ratio of the row fell, where the row says so."""
    reason_by_bar = {}
    for row in results["rows"]:
        for bar in row.get("chart", ()):
            if row.get("reason"):
                reason_by_bar[bar["task"], bar["peer"]] = row["reason"]
    return reason_by_bar


def fallen_ratios(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Return a line for each ratio that fell or is gone, and whether each of them has a reason."""
    new_ratios = ratios(new)
    new_reasons = reasons(new)
    lines = []
    explained = True
    for key, old_ratio in ratios(old).items():
        task, peer = key
        new_ratio = new_ratios.get(key)
        if new_ratio is None:
            lines.append(f"{task}, next to {peer}: {old_ratio:.3g}, and no longer measured")
            explained = False
            continue
        if new_ratio >= old_ratio * (1 - NOISE):
            continue
        reason = new_reasons.get(key, "")
        explained = explained and bool(reason)
        change = f"{task}, next to {peer}: {old_ratio:.3g} before, {new_ratio:.3g} now"
        lines.append(f"{change}; {reason or 'no reason is given'}")
    return lines, explained


def compare(old_file: Path) -> int:
    """Print the ratios that fell since an older file."""
    old = json.loads(old_file.read_text("utf-8"))
    new = json.loads(RESULTS.read_text("utf-8"))
    if old["machine"] != new["machine"]:
        print(f"machines differ: {old['machine']} before, {new['machine']} now")
    lines, explained = fallen_ratios(old, new)
    print("\n".join(lines) or "no ratio fell")
    return 0 if explained else 1


def main(arguments: list[str]) -> int:
    """Write the chart and the table, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true")
    action.add_argument("--compare", type=Path, metavar="OLD.json")
    options = parser.parse_args(arguments)
    if options.compare is not None:
        return compare(options.compare)
    results = json.loads(RESULTS.read_text("utf-8"))
    page = PAGE.read_text("utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    files = {
        CHART: chart(results["rows"]),
        PAGE: f"{before}{BEGIN}\n{table(results)}\n{END}{after}",
    }
    if options.check:
        return int(any(path.read_text("utf-8") != text for path, text in files.items()))
    for path, text in files.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
