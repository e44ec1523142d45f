"""Checks of a conversion: equal tensors, readable files, unchanged sources."""
