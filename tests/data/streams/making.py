"""Documents, and files with them, of each format that streams read."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import zstandard

SENTENCE = "the cat sat on a mat and saw seven small grey mice run over some old stones"
WORDS = SENTENCE.split()


def documents(count: int) -> list[str]:
    """Return texts of different lengths, each of which is unlike all others."""
    texts = []
    for number in range(count):
        start = number % 7
        words = WORDS[start : start + 4 + number % 9]
        texts.append(f"Number {number}. " + " ".join(words) + f". End of {number}.")
    return texts


def json_lines(texts: Sequence[str], field: str = "text") -> bytes:
    lines = [json.dumps({"id": number, field: text}) for number, text in enumerate(texts)]
    return ("\n".join(lines) + "\n").encode()


def write_json_lines(path: Path, texts: Sequence[str], field: str = "text") -> Path:
    """Write JSON lines, compressed as the name says."""
    content = json_lines(texts, field)
    if path.suffix == ".gz":
        content = gzip.compress(content)
    if path.suffix == ".zst":
        content = zstandard.compress(content)
    path.write_bytes(content)
    return path
