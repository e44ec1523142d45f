"""Texts and commands for tests of cleaning."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROSE = (
    "The committee met on Monday to discuss the new budget for the town. "
    "It agreed on three points after a long debate. "
    "The mayor said that the roads would be repaired before winter. "
    "Residents welcomed the plan and asked for more buses. "
    "The next meeting is going to be in March."
)


def write_texts(path: Path, texts: Sequence[str]) -> Path:
    """Write texts as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of cleaned texts."""
    rows = []
    for path in sorted((folder / "texts").iterdir()):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows += [json.loads(line) for line in file]
    return rows


def read_texts(folder: Path) -> list[str]:
    """Return cleaned texts."""
    return [row["text"] for row in read_rows(folder)]
