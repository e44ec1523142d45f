"""Kernels for speed: the results of a textbook formula, up to rounding.

Each module says when its function is faster.
"""
