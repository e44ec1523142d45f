"""Scores of a run: quality, size and speed of the student next to its teachers."""
