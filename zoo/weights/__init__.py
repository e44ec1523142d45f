"""Rules that map tensor names and shapes between the Hub's layout and ours, without torch."""

from zoo.weights.buffers import is_arange, is_causal_mask, is_frequencies, is_mask_value
from zoo.weights.constants import sinusoidal_positions
from zoo.weights.matching import MappingReport, TensorCopy, check_counts, match_tensors
from zoo.weights.ops import Concat, DeinterleaveQKV, Identity, Op, SplitHeads, Transpose
from zoo.weights.rules import Constant, Ignore, Rule, TensorMapping, TiedAlias, WeightMap

__all__ = [
    "Concat",
    "Constant",
    "DeinterleaveQKV",
    "Identity",
    "Ignore",
    "MappingReport",
    "Op",
    "Rule",
    "SplitHeads",
    "TensorCopy",
    "TensorMapping",
    "TiedAlias",
    "Transpose",
    "WeightMap",
    "check_counts",
    "is_arange",
    "is_causal_mask",
    "is_frequencies",
    "is_mask_value",
    "match_tensors",
    "sinusoidal_positions",
]
