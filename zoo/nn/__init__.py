"""Blocks that two families or more are built from."""
