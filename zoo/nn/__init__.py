"""Blocks that families of several kinds are built from: ours, and those of third parties."""
