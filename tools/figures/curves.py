"""Validation curves of the tiny recipes, from ``benchmarks/tiny_curves.json``.

``python -m benchmarks.tiny_recipes --figures DIR`` writes new values; those of the file were read
back from vector drawings of its runs, to four digits.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from zoo.report.figures import draw_bands

RECORD = Path(__file__).parents[2] / "benchmarks" / "tiny_curves.json"
CURVES: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))


def _draw(name: str) -> str:
    figure = CURVES[name]
    return draw_bands({figure["unit"]: figure["curves"]}, x="step", marks=figure["marks"])


DRAWINGS = {name: partial(_draw, name) for name in CURVES}
