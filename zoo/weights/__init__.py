"""Weights: one list of rules imports, exports and checks a family's tensors. Torch-free."""

from zoo.weights.account import Account, Move, account_for
from zoo.weights.ops import Concat, Op, Same, Transpose
from zoo.weights.rules import Drop, Entry, Rule, Tied, WeightMap, is_arange

__all__ = [
    "Account",
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
    "is_arange",
]
