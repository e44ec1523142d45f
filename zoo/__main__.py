"""Entry point of ``python -m zoo``, the same as the command ``zoo``."""

from zoo.cli import main

main()
