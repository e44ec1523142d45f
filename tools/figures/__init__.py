"""Drawings of the documentation: ``python -m tools.figures`` writes them to docs/figures."""
