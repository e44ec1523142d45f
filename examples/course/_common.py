"""What the scripts share: running commands, and training a few steps with ``--quick``."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def arguments(about: str) -> argparse.Namespace:
    """Return the options of a script: ``output``, a new directory, and ``quick``."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("-o", "--output", type=Path, default=Path("course"))
    parser.add_argument("--quick", action="store_true", help="train a few steps only")
    known, _ = parser.parse_known_args()  # a notebook has arguments of its own
    return known


def zoo(*words: object) -> None:
    """Print a command and run it; stop if it fails."""
    command = [str(word) for word in words]
    print("\n$ zoo", *command, flush=True)
    subprocess.run([sys.executable, "-m", "zoo", *command], check=True)


def answers(*words: object) -> Any:
    """Return what a command prints with ``--json``."""
    command = [sys.executable, "-m", "zoo", *(str(word) for word in words), "--json", "--quiet"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def steps(quick: bool, full: int) -> tuple[str, ...]:
    """Return the options that set the number of steps of a run."""
    return ("--max-steps", "4" if quick else str(full), "--seed", "1")
