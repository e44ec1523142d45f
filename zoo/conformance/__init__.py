"""Checks of families and models against their declarations and against references."""
