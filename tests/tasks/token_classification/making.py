"""Tagged sentences."""

from pathlib import Path

from tests.finetuning.making import texts

TASK = "token-classification"


def tagged(path: Path, count: int = 40, seed: int = 0) -> Path:
    """Write sentences whose vowels are entities, two of a kind in a row making one."""
    lines = []
    for text in texts(count, seed):
        before = "O"
        for word in text.split():
            kind = {"a": "LOW", "b": "LOW", "e": "MID"}.get(word)
            label = "O" if kind is None else f"{'I' if before[2:] == kind else 'B'}-{kind}"
            lines.append(f"{word}\t{label}")
            before = label
        lines.append("")
    path.write_text("\n".join(lines))
    return path
