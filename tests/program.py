"""A program in a process that has imported torch; see ``tests/warm.py``."""

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Run the source of a program."""
    (code,) = arguments
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
