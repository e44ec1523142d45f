"""Weights: one list of rules imports, exports and checks a family's tensors. Torch-free."""

from zoo.weights.account import Account, Move, account_for, check_counts
from zoo.weights.buffers import is_arange, is_low, is_triangle
from zoo.weights.ops import ByHead, Concat, Op, Same, Transpose
from zoo.weights.rules import Drop, Entry, Rule, Tied, WeightMap

__all__ = [
    "Account",
    "ByHead",
    "Concat",
    "Drop",
    "Entry",
    "Move",
    "Op",
    "Rule",
    "Same",
    "Tied",
    "Transpose",
    "WeightMap",
    "account_for",
    "check_counts",
    "is_arange",
    "is_low",
    "is_triangle",
]
