"""Curves that benchmarks have recorded: validation of the tiny recipes, and probes by layer.

``python -m benchmarks.tiny_recipes --figures DIR`` writes new values of ``tiny_curves.json``; those
of the file were read back from vector drawings of its runs, to four digits. ``python -m
benchmarks.probing --curves FILE`` writes ``probing_curves.json``.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from zoo.report.figures import draw_bands

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CURVES: dict[str, Any] = json.loads((BENCHMARKS / "tiny_curves.json").read_text("utf-8"))
PROBES: dict[str, Any] = json.loads((BENCHMARKS / "probing_curves.json").read_text("utf-8"))


def _draw(name: str) -> str:
    figure = CURVES[name]
    return draw_bands({figure["unit"]: figure["curves"]}, x="step", marks=figure["marks"])


def _draw_probes() -> str:
    return draw_bands(PROBES, x="layer")


DRAWINGS: dict[str, Callable[[], str]] = {
    **{name: partial(_draw, name) for name in CURVES},
    "probing": _draw_probes,
}
