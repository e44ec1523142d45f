"""Write docs/figures/*.svg; ``--check`` only compares them, and exits with 1 if one is old."""

import sys
from collections.abc import Callable
from pathlib import Path

from tools.figures import conversion, curves, objectives, packing, recipes

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
FIGURES: dict[str, Callable[[], str]] = {
    "conversion": conversion.draw,
    "packing": packing.draw,
    "objectives": objectives.draw,
    "recipes": recipes.draw,
    **curves.DRAWINGS,
}


def main(arguments: list[str]) -> int:
    """Write the figures, or compare them."""
    outdated = []
    for name, draw in FIGURES.items():
        path = FOLDER / f"{name}.svg"
        drawn = draw()
        if arguments == ["--check"]:
            outdated += [] if path.is_file() and path.read_text("utf-8") == drawn else [str(path)]
        else:
            path.write_text(drawn, "utf-8")
    if outdated:
        print(f"run python -m tools.figures: {', '.join(outdated)} are out of date")
    return int(bool(outdated))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
