"""Models of natural language inference."""

from typing import Any

Names = tuple[str, ...]
NLI: Names = ("contradiction", "neutral", "entailment")


def labelled(names: Names) -> dict[str, Any]:
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }
